// Losses as graphs: softmax cross-entropy, mean squared error, binary cross-entropy of logits.
#include "LossFormulas.h"

#include "GraphUtilities.h"

#include <algorithm>
#include <charconv>
#include <cmath>

using namespace pdc;

namespace {

/// Builds one loss.
class Formula {
public:
  Formula(const LossOptions& options, Builder& builder) : options_(options), builder_(builder) {}

  Value* softmaxCrossEntropy(Value& logits);
  Value* meanSquaredError(Value& prediction);
  Value* binaryCrossEntropy(Value& logits);

private:
  Value* label(const Type& type, const std::string& usualName);
  Value* classWeights(std::int64_t classes, ElementType element);
  Value* meanOfAll(Value& value);
  Diagnostics::Builder error() { return builder_.diags().error({.file = builder_.module().file}); }

  const LossOptions& options_;
  Builder& builder_;
};

/// The input to compare with: one of that name that is a label already, or that the flag names, else a new one.
Value* Formula::label(const Type& type, const std::string& usualName) {
  const std::string& name = options_.label.empty() ? usualName : options_.label;
  for (GraphInput& input : builder_.graph().inputs) {
    if (input.value->name() != name || (input.kind != InputKind::label && options_.label.empty())) continue;
    const Type& found = input.value->type();
    const bool fits = isFloat(type.element) ? found == type
                                            : found.shape == type.shape && (found.element == ElementType::i64 ||
                                                                            found.element == ElementType::i32);
    if (!fits) {
      static_cast<void>(error().help("give it a label of its own: --loss=" + options_.kind + ":OUTPUT,label=NAME")
                        << "the label '" << name << "' is " << toString(found) << ", the loss '" << options_.kind
                        << "' needs " << toString(type));
      return nullptr;
    }
    input.kind = InputKind::label;
    return input.value;
  }
  return builder_.graph().addInput(type, name, InputKind::label);
}

Value* Formula::classWeights(std::int64_t classes, ElementType element) {
  const auto& weights = options_.classWeights;
  if (static_cast<std::int64_t>(weights.size()) != classes) {
    static_cast<void>(error().exit(ExitCode::usage) << "class_weights are " << weights.size()
                                                    << " numbers, the output has " << classes << " classes");
    return nullptr;
  }
  Tensor tensor(Type{element, {classes}});
  for (std::size_t i = 0; i < weights.size(); ++i) tensor.set(static_cast<std::int64_t>(i), weights[i]);
  return builder_.constant(tensor);
}

/// Classes are on the last axis, on axis 1 of 4-D logits, which is where the op has them.
Value* Formula::softmaxCrossEntropy(Value& prediction) {
  Value* logits = &prediction;
  Shape labels = logits->type().shape;
  if (labels.size() < 2) {
    static_cast<void>(error() << "logits of a softmax cross-entropy are at least f32[samples, classes], here "
                              << toString(logits->type()));
    return nullptr;
  }
  const bool classesOnAxis1 = labels.size() == 2 || labels.size() == 4;
  const auto classAxis = labels.begin() + (classesOnAxis1 ? 1 : static_cast<std::ptrdiff_t>(labels.size()) - 1);
  const std::int64_t classes = *classAxis;
  labels.erase(classAxis);
  Value* target = label({ElementType::i64, labels}, "label");
  if (!target) return nullptr;
  if (!classesOnAxis1) {
    const std::int64_t positions = elementsOf(labels);
    logits = builder_.value("reshape", {logits}, {{"shape", std::vector<std::int64_t>{positions, classes}}});
    target = builder_.value("reshape", {target}, {{"shape", std::vector<std::int64_t>{positions}}});
  }
  if (!logits || !target) return nullptr;
  std::vector<Value*> operands = {logits, target};
  if (!options_.classWeights.empty()) {
    operands.push_back(classWeights(classes, logits->type().element));
    if (!operands.back()) return nullptr;
  }
  Attributes attributes = {{"label_smoothing", options_.labelSmoothing}};
  if (options_.ignoreIndex) {
    attributes.set("has_ignore_index", true);
    attributes.set("ignore_index", *options_.ignoreIndex);
  }
  return builder_.value("softmax_cross_entropy", std::move(operands), std::move(attributes));
}

Value* Formula::meanOfAll(Value& value) {
  std::vector<std::int64_t> axes;
  for (int axis = 0; axis < value.type().rank(); ++axis) axes.push_back(axis);
  return builder_.value("reduce_mean", {&value}, {{"axes", axes}, {"keep_dims", false}});
}

Value* Formula::meanSquaredError(Value& prediction) {
  Value* target = label(prediction.type(), "target");
  Value* difference = target ? builder_.value("sub", {&prediction, target}) : nullptr;
  Value* square = difference ? builder_.value("mul", {difference, difference}) : nullptr;
  return square ? meanOfAll(*square) : nullptr;
}

/// -t·log σ(x) - (1 - t)·log(1 - σ(x)), which is softplus(x) - x·t, without overflow.
Value* Formula::binaryCrossEntropy(Value& logits) {
  Value* target = label(logits.type(), "target");
  if (!target) return nullptr;
  Value* loss = builder_.value("elementwise", {&logits, target},
                               {{"expressions", std::vector<std::string>{"softplus(a0) - a0 * a1"}}});
  return loss ? meanOfAll(*loss) : nullptr;
}

/// Reads the options of a loss; the first that is wrong is reported.
class OptionReader {
public:
  OptionReader(const std::map<std::string, std::string>& options, Diagnostics& diags)
      : options_(options), diags_(diags) {}

  Status text(const char* key, std::string& value) {
    if (const std::string* found = find(key)) value = *found;
    return success;
  }
  Status number(const char* key, double least, double most, double& value) {
    const std::string* found = find(key);
    return !found || read(*found, value, least, most) ? Status(success) : wrong(key, *found, least, most);
  }
  Status integer(const char* key, std::optional<std::int64_t>& value) {
    const std::string* found = find(key);
    if (!found) return success;
    std::int64_t number = 0;
    const char* end = found->data() + found->size();
    if (auto [at, error] = std::from_chars(found->data(), end, number); error != std::errc() || at != end)
      return diags_.error({}).exit(ExitCode::usage)
             << "--loss: " << key << " is '" << *found << "', expected an integer";
    value = number;
    return success;
  }
  Status numbers(const char* key, std::vector<double>& values) {
    const std::string* found = find(key);
    if (!found) return success;
    for (std::size_t begin = 0; begin <= found->size();) {
      const std::size_t end = std::min(found->find('/', begin), found->size());
      double number = 0;
      if (const std::string word = found->substr(begin, end - begin); !read(word, number, 0, HUGE_VAL))
        return wrong(key, word, 0, HUGE_VAL);
      values.push_back(number);
      begin = end + 1;
    }
    return success;
  }

private:
  const std::string* find(const char* key) const {
    const auto found = options_.find(key);
    return found == options_.end() || found->second.empty() ? nullptr : &found->second;
  }
  static bool read(const std::string& text, double& value, double least, double most) {
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    return error == std::errc() && at == end && std::isfinite(value) && value >= least && value <= most;
  }
  Status wrong(const char* key, const std::string& text, double least, double most) {
    return diags_.error({}).exit(ExitCode::usage)
           << "--loss: " << key << " is '" << text << "', expected a number of at least " << least
           << (most < HUGE_VAL ? " and at most 1" : "");
  }

  const std::map<std::string, std::string>& options_;
  Diagnostics& diags_;
};

} // namespace

Value* pdc::lossOf(const LossOptions& options, Value& prediction, Builder& builder) {
  Formula formula(options, builder);
  if (options.kind == "softmax-cross-entropy") return formula.softmaxCrossEntropy(prediction);
  return options.kind == "mse" ? formula.meanSquaredError(prediction) : formula.binaryCrossEntropy(prediction);
}

Expected<LossOptions> pdc::lossOptions(const std::map<std::string, std::string>& options, Diagnostics& diags) {
  LossOptions loss;
  OptionReader reader(options, diags);
  if (!reader.text("kind", loss.kind) || !reader.text("output", loss.output) || !reader.text("label", loss.label) ||
      !reader.number("weight", 0, HUGE_VAL, loss.weight) || !reader.integer("ignore_index", loss.ignoreIndex) ||
      !reader.number("label_smoothing", 0, 1, loss.labelSmoothing) ||
      !reader.numbers("class_weights", loss.classWeights))
    return failure;
  const std::vector<std::string> kinds = {"", "softmax-cross-entropy", "mse", "bce-with-logits", "output"};
  if (std::find(kinds.begin(), kinds.end(), loss.kind) == kinds.end())
    return diags.error({})
               .exit(ExitCode::usage)
               .help("it is one of softmax-cross-entropy, mse, bce-with-logits, output:NAME")
           << "there is no loss '" << loss.kind << "'";
  const bool forClasses = loss.ignoreIndex || loss.labelSmoothing != 0 || !loss.classWeights.empty();
  if (forClasses && loss.kind != "softmax-cross-entropy")
    return diags.error({}).exit(ExitCode::usage)
           << "ignore_index, label_smoothing and class_weights go with softmax-cross-entropy, not with '" << loss.kind
           << "'";
  if (!loss.label.empty() && loss.kind == "output")
    return diags.error({}).exit(ExitCode::usage) << "--loss=output:" << loss.output << " takes no label";
  return loss;
}
