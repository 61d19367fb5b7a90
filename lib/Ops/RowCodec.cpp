// What travels between stages in fewer bytes (`--edge-codec`): rows of int8, and the few columns with outliers as they
// are. The kernel is pdcrt::RowCodec; the bytes of all parts are one value, so that they are one message.
#include "Kernels/KernelOptions.h"
#include "Shared/Define.h"
#include "Shared/LoopsOf.h"

#include <bit>
#include <cmath>
#include <limits>

namespace pdc::ops::RowCodec {

namespace {

using Parts = pdcrt::RowCodec::Layout; ///< of the encoded bytes

pdcrt::RowCodec::Options optionsFor(const Shape& shape, const Attributes& attributes) {
  const std::int64_t columns = shape.empty() ? 1 : shape.back();
  return {.rows = columns > 0 ? product(shape, 0, shape.size()) / columns : 0,
          .columns = columns,
          .kept = attributes.getInt("columns"),
          .alpha = attributes.get<double>("alpha")};
}

std::vector<AttributeDef> attributes() {
  return {integer("columns", std::nullopt, "how many may stay as they are"),
          number("alpha", 6, "the least magnitude of a column that stays, rounded to f32")};
}

Status checkAttributes(const InferContext& c, const std::string& op) {
  const double alpha = c.attributes.get<double>("alpha");
  if (const std::int64_t columns = integerOf(c, "columns"); columns < 0 || columns > 65536)
    return c.error() << "'" << op << "' op keeps " << columns << " columns, it can keep 0 to 65536";
  if (!(alpha >= 0)) return c.error() << "'" << op << "' op has alpha " << alpha << ", it needs 0 or more";
  return success;
}

/// Bytes are the integers of a tensor.
class Bytes {
public:
  explicit Bytes(std::size_t count) : bytes_(count) {}
  explicit Bytes(const Tensor& tensor) : Bytes(static_cast<std::size_t>(tensor.type().elements())) {
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = tensor.asInt(static_cast<std::int64_t>(i));
  }
  const std::vector<std::int64_t>& all() const { return bytes_; }
  std::int64_t& operator[](std::size_t at) { return bytes_[at]; }
  void setWord(std::size_t at, std::uint32_t word) {
    for (std::size_t i = 0; i < 4; ++i) bytes_[at + i] = word >> (8 * i) & 255;
  }
  std::uint32_t word(std::size_t at) const {
    std::uint32_t word = 0;
    for (std::size_t i = 0; i < 4; ++i) word |= static_cast<std::uint32_t>(bytes_[at + i]) << (8 * i);
    return word;
  }

private:
  std::vector<std::int64_t> bytes_;
};

/// In f32, whatever the interpreter computes in. NaN counts as infinity.
void encode(ReferenceContext& c) {
  const Tensor& x = *c.operands[0];
  const pdcrt::RowCodec::Options o = optionsFor(x.type().shape, c.op.attributes);
  const Parts layout(o);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const auto at = [&](std::int64_t i, std::int64_t j) { return static_cast<float>(x.asDouble(i * o.columns + j)); };
  const auto size = [&](std::int64_t i, std::int64_t j) {
    const float value = std::abs(at(i, j));
    return value == value ? value : infinity;
  };
  std::vector<float> largest(static_cast<std::size_t>(o.columns), 0);
  for (std::int64_t j = 0; j < o.columns; ++j)
    for (std::int64_t i = 0; i < o.rows; ++i)
      largest[static_cast<std::size_t>(j)] = std::max(largest[static_cast<std::size_t>(j)], size(i, j));
  Bytes bytes(layout.bytes);
  std::vector<bool> stays(largest.size(), false);
  for (std::int64_t k = 0; k < o.kept; ++k) {
    std::int64_t best = -1;
    for (std::int64_t j = 0; j < o.columns; ++j) {
      const float m = largest[static_cast<std::size_t>(j)];
      if (stays[static_cast<std::size_t>(j)] || !(m >= static_cast<float>(o.alpha))) continue;
      if (best < 0 || m > largest[static_cast<std::size_t>(best)]) best = j;
    }
    bytes.setWord(layout.places + 4 * static_cast<std::size_t>(k), static_cast<std::uint32_t>(best));
    if (best < 0) continue;
    stays[static_cast<std::size_t>(best)] = true;
    for (std::int64_t i = 0; i < o.rows; ++i)
      bytes.setWord(layout.outliers + 4 * static_cast<std::size_t>(i * o.kept + k),
                    std::bit_cast<std::uint32_t>(at(i, best)));
  }
  for (std::int64_t i = 0; i < o.rows; ++i) {
    float b = 0;
    for (std::int64_t j = 0; j < o.columns; ++j)
      if (!stays[static_cast<std::size_t>(j)]) b = std::max(b, size(i, j));
    const float scale = b == infinity ? infinity : b < pdcrt::RowCodec::least ? 0 : b / 127;
    bytes.setWord(4 * static_cast<std::size_t>(i), std::bit_cast<std::uint32_t>(scale));
    for (std::int64_t j = 0; j < o.columns; ++j) {
      if (stays[static_cast<std::size_t>(j)] || scale == 0 || scale == infinity) continue;
      const auto q = static_cast<std::int64_t>(std::nearbyint(at(i, j) * (127 / b)));
      bytes[layout.integers + static_cast<std::size_t>(i * o.columns + j)] = q & 255;
    }
  }
  *c.results[0] = Tensor::ofInts(c.results[0]->type().shape, bytes.all(), ElementType::u8);
}

void decode(ReferenceContext& c) {
  const Shape& shape = c.results[0]->type().shape;
  const pdcrt::RowCodec::Options o = optionsFor(shape, c.op.attributes);
  const Parts layout(o);
  const Bytes bytes(*c.operands[0]);
  const auto number = [&](std::size_t at) { return std::bit_cast<float>(bytes.word(at)); };
  for (std::int64_t i = 0; i < o.rows; ++i) {
    for (std::int64_t j = 0; j < o.columns; ++j) {
      const std::int64_t byte = bytes.all()[layout.integers + static_cast<std::size_t>(i * o.columns + j)];
      const float q = static_cast<float>(static_cast<std::int8_t>(byte));
      c.results[0]->set(i * o.columns + j, q * number(4 * static_cast<std::size_t>(i)));
    }
    for (std::int64_t k = 0; k < o.kept; ++k) {
      const auto j = static_cast<std::int32_t>(bytes.word(layout.places + 4 * static_cast<std::size_t>(k)));
      if (j >= 0 && j < o.columns)
        c.results[0]->set(i * o.columns + j, number(layout.outliers + 4 * static_cast<std::size_t>(i * o.kept + k)));
    }
  }
}

/// Examples that encode values of several shapes, and, if `andBack`, decode them.
std::vector<std::string> examples(bool andBack) {
  std::vector<std::string> all;
  const auto add = [&](const std::string& shape, std::int64_t bytes, const std::string& options) {
    const std::string there = "%y = encode_rows %x {" + options + "} : u8[" + std::to_string(bytes) + "]";
    const std::string back = "\n%z = decode_rows %y {" + options + ", shape = [" + shape + "]} : f32[" + shape + "]";
    all.push_back(example("%x: f32[" + shape + "]", andBack ? there + back : there));
  };
  add("3, 5", 12 + 4 + 12 + 15, "alpha = 0.5, columns = 1");
  add("2, 3, 4", 24 + 8 + 48 + 24, "alpha = 1.0, columns = 2");
  add("4, 7", 16 + 28, "columns = 0");
  add("6", 4 + 8 + 8 + 6, "alpha = 0.0, columns = 2");
  add("5, 1", 20 + 8 + 40 + 5, "alpha = 1000.0, columns = 2");
  return all;
}

} // namespace

std::vector<OpDef> define() {
  std::vector<AttributeDef> ofDecode = attributes();
  ofDecode.insert(ofDecode.begin(), shapeOf(0, integers("shape", std::nullopt, "of the value")));
  return {
      {
          .name = "encode_rows",
          .summary = "The bytes of X with int8 rows, and the columns with the largest magnitudes as they are",
          .operands = {{"X"}},
          .results = {{"Y"}},
          .attributes = attributes(),
          .infer = [](const InferContext& c) -> Types {
            if (!checkAttributes(c, "encode_rows")) return failure;
            const Type& x = c.operand(0);
            if (x.element != ElementType::f32 && x.element != ElementType::f64)
              return c.error() << "'encode_rows' op needs floats of 32 bits, operand 0 is " << toString(x);
            const Parts layout(optionsFor(x.shape, c.attributes));
            return std::vector<Type>{{ElementType::u8, {static_cast<std::int64_t>(layout.bytes)}}};
          },
          .precision = PrecisionClass::keepHigh,
          .cost = [](const Operation& op) -> Cost {
            const Type& x = operandType(op, 0);
            return {4.0 * static_cast<double>(x.elements()), 2 * static_cast<double>(x.bytes()) + bytesMoved(op)};
          },
          .kernel = {.use =
                         [](const Operation& op) {
                           return kernelUse<pdcrt::RowCodec>("RowCodec", "encode",
                                                             optionsFor(operandType(op, 0).shape, op.attributes));
                         }},
          .reference = moving(encode),
          .examples = examples(/*andBack=*/false),
      },
      {
          .name = "decode_rows",
          .summary = "What encode_rows has made of a value, as nearly as its bytes say",
          .operands = {{"X"}},
          .results = {{"Y"}},
          .attributes = std::move(ofDecode),
          .infer = [](const InferContext& c) -> Types {
            if (!checkAttributes(c, "decode_rows")) return failure;
            const Shape shape = c.attributes.get<Shape>("shape");
            const auto bytes = static_cast<std::int64_t>(Parts(optionsFor(shape, c.attributes)).bytes);
            const Type &x = c.operand(0), needed{ElementType::u8, {bytes}};
            if (x.element != needed.element || x.shape != needed.shape)
              return c.error() << "'decode_rows' op needs " << toString(needed) << " for a value of shape "
                               << toString(Type{ElementType::f32, shape}) << ", operand 0 is " << toString(x);
            return std::vector<Type>{{ElementType::f32, shape}};
          },
          .precision = PrecisionClass::keepHigh,
          .cost = perElement(1),
          .kernel = {.use =
                         [](const Operation& op) {
                           return kernelUse<pdcrt::RowCodec>("RowCodec", "decode",
                                                             optionsFor(resultType(op, 0).shape, op.attributes));
                         }},
          .reference = moving(decode),
          .examples = examples(/*andBack=*/true),
      },
  };
}

} // namespace pdc::ops::RowCodec
