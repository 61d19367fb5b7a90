// Reading an ONNX node in a conversion: inputs, attributes, constants, and errors that name the node and the remedy.
//
// A conversion states how many inputs it needs and reads every attribute that it understands; what it did not read is
// an error, because an attribute that is silently ignored is a wrong model.
#pragma once

#include "pdc/IR/Builder.h"

#include <set>

namespace pdc::ops {

class OnnxReader {
public:
  OnnxReader(const OnnxNode& n, Builder& builder, Diagnostics& diagnostics) : node(n), b(builder), diags(diagnostics) {}

  const OnnxNode& node;
  Builder& b;
  Diagnostics& diags;

  std::int64_t version() const { return node.version; }

  /// Input i, or null where it is absent.
  Value* input(std::size_t i) const { return i < node.inputs.size() ? node.inputs[i] : nullptr; }
  const Type& type(std::size_t i) const { return input(i)->type(); }
  /// Whether output i has a name.
  bool used(std::size_t i) const { return i < node.outputUsed.size() && node.outputUsed[i]; }

  // Attributes, with ONNX's default. One of the wrong kind is reported and spoils the conversion.
  bool has(const std::string& name) const { return node.attributes.has(name); }
  std::int64_t integer(const std::string& name, std::int64_t standard) { return read(name, standard); }
  double number(const std::string& name, double standard) { return read(name, standard); }
  std::string text(const std::string& name, const std::string& standard) { return read(name, standard); }
  std::vector<std::int64_t> integers(const std::string& name, std::vector<std::int64_t> standard = {}) {
    return read(name, std::move(standard));
  }
  std::vector<double> numbers(const std::string& name, std::vector<double> standard = {}) {
    return read(name, std::move(standard));
  }
  std::vector<std::string> texts(const std::string& name, std::vector<std::string> standard = {}) {
    return read(name, std::move(standard));
  }
  Tensor tensor(const std::string& name) { return read(name, Tensor()); }
  /// An attribute that may have any value without changing the result.
  void ignore(const std::string& name) { read_.insert(name); }

  /// The tensor that input i always is; nothing, with an error reported, when it is not constant.
  std::optional<Tensor> constant(std::size_t i, const char* what);
  /// Its integers.
  std::optional<std::vector<std::int64_t>> constantIntegers(std::size_t i, const char* what);
  /// `name` as an attribute before opset `moved`, as constant input i from then on; `standard` when neither is there.
  std::optional<std::vector<std::int64_t>> movedIntegers(const std::string& name, std::int64_t moved, std::size_t i,
                                                         std::vector<std::int64_t> standard = {});
  /// `axis` counted from the front; nothing, with an error reported, when it does not lie in -rank … rank - 1.
  std::optional<std::int64_t> axis(std::int64_t axis, int rank);
  /// The same for a list, ascending and distinct.
  std::optional<std::vector<std::int64_t>> axes(std::vector<std::int64_t> axes, int rank);

  /// An error at the node: "'Conv' operator " and what follows.
  Diagnostics::Builder error() { return start(ExitCode::invalidInput); }
  /// Likewise, for what ONNX allows and pdc does not.
  Diagnostics::Builder unsupported() { return start(ExitCode::unsupported); }

  // Shorthands for the builder.
  Value* value(const std::string& name, std::vector<Value*> operands, Attributes attributes = {}) {
    return b.value(name, std::move(operands), std::move(attributes));
  }
  /// Null for null, so that a failure before is reported once.
  Value* reshape(Value* x, Shape shape);
  Value* transpose(Value* x, std::vector<std::int64_t> permutation);

  /// True when an attribute had the wrong kind.
  bool failed() const { return failed_; }
  /// Reports attributes that nobody has read.
  Status finish();

private:
  template <class T>
  T read(const std::string& name, T standard) {
    read_.insert(name);
    const Attribute* found = node.attributes.find(name);
    if (!found) return standard;
    if (const T* value = std::get_if<T>(found)) return *value;
    wrongKind(name);
    return standard;
  }
  void wrongKind(const std::string& name);
  Diagnostics::Builder start(ExitCode code);

  std::set<std::string> read_;
  bool failed_ = false;
};

/// The conversion of an operator with one output; null means that it failed and was reported.
OnnxMapping onnx(std::string opType, std::size_t inputs, std::function<Value*(OnnxReader&)> convert,
                 std::int64_t since = 1, std::int64_t until = newestOpset);
/// The conversion of an operator with several outputs, or whose inputs are variadic.
OnnxMapping onnxMany(std::string opType, std::size_t inputs,
                     std::function<Expected<std::vector<Value*>>(OnnxReader&)> convert, std::int64_t since = 1,
                     std::int64_t until = newestOpset);
/// An operator that is op `name`, operand for input.
OnnxMapping onnxSame(std::string opType, std::size_t inputs, std::string name);

/// An OpDef for operators that exist in ONNX only.
OpDef composed(std::string name, std::string summary, std::vector<OnnxMapping> onnx);

} // namespace pdc::ops
