// Comparisons, logic, choice, and conversion between element types.
#include "Shared/Elementwise.h"

namespace pdc::ops::Logic {

static Value* castTo(OnnxReader& n, ElementType to) {
  n.ignore("saturate");   // about 8-bit floats, which pdc does not have
  n.ignore("round_mode"); // likewise
  Value* x = n.input(0);
  if (x->type().element == to) return x;
  if (to == ElementType::boolean) return n.value("not_equal", {x, n.b.constant(0, x->type().element)});
  return n.value("cast", {x}, {{"to", std::string(nameOf(to))}});
}

static Value* convertCast(OnnxReader& n) {
  const std::int64_t number = n.integer("to", 0);
  if (const std::optional<ElementType> to = elementTypeFromOnnx(number)) return castTo(n, *to);
  static_cast<void>(n.unsupported() << "converts to element type " << number << " of ONNX, which pdc does not have");
  return nullptr;
}

static OpDef cast() {
  return {.name = "cast",
          .summary = "X with another element type; floats become integers by truncation",
          .kind = OpKind::elementwise,
          .onnx = {onnx("Cast", 1, convertCast),
                   onnx(
                       "CastLike", 2, [](OnnxReader& n) { return castTo(n, n.type(1).element); }, 15)},
          .operands = {{"X"}},
          .results = {{"Y"}},
          .attributes = {{"to", std::string("f32"), std::nullopt, "the element type of Y"}},
          .infer = [](const InferContext& c) -> Types {
            Type type = c.operand(0);
            const std::string& to = c.attributes.get<std::string>("to");
            if (!elementTypeFromName(to, type.element))
              return c.error() << "'cast' op has to = '" << to << "', which is no element type";
            if (type.element == ElementType::boolean && c.operand(0).element != ElementType::boolean)
              return c.error().help("compare with 0 by 'not_equal'") << "'cast' op does not convert to 'bool'";
            return std::vector<Type>{type};
          },
          .gradient = [](GradientContext& g) -> std::vector<Value*> {
            const Type& x = operandType(g.op(), 0);
            if (!g.resultGradient(0) || !isFloat(x.element) || !isFloat(resultType(g.op()).element)) return {nullptr};
            return {g.value(0, "cast", {g.resultGradient(0)}, {{"to", std::string(nameOf(x.element))}})};
          },
          .expressions = {"X"},
          .rewrites = {.canonicalize = [](Operation& op, Builder&) -> Value* {
            return operandType(op, 0).element == resultType(op).element ? op.operand(0) : nullptr;
          }},
          .examples = {example("%x: i64[2, 3]", "%y = cast %x {to = \"f32\"} : f32[2, 3]"),
                       example("%x: bool[4]", "%y = cast %x {to = \"f32\"} : f32[4]"),
                       example("%x: i32[4]", "%y = cast %x {to = \"i64\"} : i64[4]"),
                       example("%x: f32[]", "%y = cast %x {to = \"i64\"} : i64[]"),
                       example("%x: f32[3]", "%y = cast %x {to = \"f32\"} : f32[3]"),
                       example("%x: f32[1, 2]", "%y = cast %x {to = \"f32\"} : f32[1, 2]"),
                       example("%x: f32[]", "%y = cast %x {to = \"f32\"} : f32[]"),
                       example("%x: f32[2, 2, 1]", "%y = cast %x {to = \"f32\"} : f32[2, 2, 1]"),
                       example("%x: f32[7]", "%y = cast %x {to = \"f32\"} : f32[7]")}};
}

static OpDef where() {
  return {.name = "where",
          .summary = "A where condition holds, B elsewhere",
          .kind = OpKind::elementwise,
          .onnx = {onnxSame("Where", 3, "where")},
          .operands = {{"condition"}, {"A"}, {"B"}},
          .results = {{"Y"}},
          .expressions = {"select(condition, A, B)"},
          .examples = {example("%c: bool[4], %a: f32[4], %b: f32[4]", "%y = where %c, %a, %b : f32[4]"),
                       example("%c: bool[2, 1], %a: f32[3], %b: f32[]", "%y = where %c, %a, %b : f32[2, 3]"),
                       example("%c: bool[], %a: f32[2, 2], %b: f32[2]", "%y = where %c, %a, %b : f32[2, 2]"),
                       example("%c: bool[2, 3], %a: f32[2, 3], %b: f32[]", "%y = where %c, %a, %b : f32[2, 3]"),
                       example("%c: bool[1, 3], %a: f32[], %b: f32[2, 1]", "%y = where %c, %a, %b : f32[2, 3]"),
                       example("%c: bool[2], %a: i64[2], %b: i64[]", "%y = where %c, %a, %b : i64[2]")}};
}

/// Y = f(A, B) of booleans.
static OpDef logical(Scalar op) {
  OpDef def = binary(std::move(op));
  def.examples = binaryExamples(def.name, "bool", "bool");
  return def;
}

static OpDef negation() {
  OpDef def = unary({.name = "not", .summary = "The opposite of X", .onnx = "Not", .expression = "!X"});
  def.examples = {example("%x: bool[2, 3]", "%y = not %x : bool[2, 3]")};
  return def;
}

/// Examples of `op %a, %b` for integers of all sizes.
std::vector<std::string> integerExamples(const std::string& op, const std::vector<std::string>& elements) {
  std::vector<std::string> texts = binaryExamples(op, elements[0], elements[0]);
  for (const std::string& element : elements)
    texts.push_back(
        example("%a: " + element + "[2, 3], %b: " + element + "[3]", "%y = " + op + " %a, %b : " + element + "[2, 3]"));
  return texts;
}

/// Y = f(A, B) of the bits of integers.
static OpDef ofBits(Scalar op) {
  OpDef def = binary(std::move(op));
  def.examples = integerExamples(def.name, {"i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8"});
  return def;
}

static Value* convertBitShift(OnnxReader& n) {
  const std::string direction = n.text("direction", "");
  if (direction == "LEFT" || direction == "RIGHT")
    return n.value(direction == "LEFT" ? "shift_left" : "shift_right", {n.input(0), n.input(1)});
  static_cast<void>(n.error() << "has the direction '" << direction << "', it must be LEFT or RIGHT");
  return nullptr;
}

/// A shifted by B places. Down, a signed integer keeps its sign. By a negative number of places, or by more than there
/// are, nothing but the sign is left where it is kept.
static OpDef shift(Scalar op) {
  OpDef def = binary(std::move(op));
  def.infer = [name = def.name](const InferContext& c) -> Types {
    const ElementType element = c.operand(0).element;
    const bool isInteger = !isFloat(element) && element != ElementType::boolean;
    const std::optional<Shape> shape = broadcast(c.operand(0).shape, c.operand(1).shape);
    if (!isInteger || c.operand(1).element != element || !shape)
      return c.error() << "'" << name << "' op needs integers of one type, its operands are " << toString(c.operand(0))
                       << " and " << toString(c.operand(1));
    return std::vector<Type>{{element, *shape}};
  };
  def.examples = integerExamples(def.name, {"u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"});
  return def;
}

static OpDef complement() {
  OpDef def = unary(
      {.name = "bit_not", .summary = "Bits that X does not have", .onnx = "BitwiseNot", .expression = "bitNot(X)"});
  def.examples.clear();
  for (const std::string type : {"i64[2, 3]", "i32[]", "i16[4]", "i8[1, 2]", "u64[3]", "u32[2]", "u16[2]", "u8[5]"})
    def.examples.push_back(example("%x: " + type, "%y = bit_not %x : " + type));
  return def;
}

std::vector<OpDef> define() {
  return {
      binary({.name = "equal", .summary = "A == B", .onnx = "Equal", .expression = "A == B"}, true),
      binary({.name = "not_equal", .summary = "A != B", .onnx = "", .expression = "A != B"}, true),
      binary({.name = "less", .summary = "A < B", .onnx = "Less", .expression = "A < B"}, true),
      binary({.name = "less_equal", .summary = "A <= B", .onnx = "LessOrEqual", .expression = "A <= B"}, true),
      binary({.name = "greater", .summary = "A > B", .onnx = "Greater", .expression = "A > B"}, true),
      binary({.name = "greater_equal", .summary = "A >= B", .onnx = "GreaterOrEqual", .expression = "A >= B"}, true),
      logical({.name = "and", .summary = "Whether A and B hold", .onnx = "And", .expression = "A && B"}),
      logical({.name = "or", .summary = "Whether A or B holds", .onnx = "Or", .expression = "A || B"}),
      logical({.name = "xor",
               .summary = "Whether one of A and B holds and the other does not",
               .onnx = "Xor",
               .expression = "A != B"}),
      negation(),
      ofBits(
          {.name = "bit_and", .summary = "Bits that A and B have", .onnx = "BitwiseAnd", .expression = "bitAnd(A, B)"}),
      ofBits({.name = "bit_or", .summary = "Bits that A or B has", .onnx = "BitwiseOr", .expression = "bitOr(A, B)"}),
      ofBits({.name = "bit_xor",
              .summary = "Bits that one of A and B has",
              .onnx = "BitwiseXor",
              .expression = "bitXor(A, B)"}),
      complement(),
      shift({.name = "shift_left",
             .summary = "A with its bits moved B places up; bits that leave it are lost",
             .onnx = "",
             .expression = "shiftLeft(A, B)"}),
      shift({.name = "shift_right",
             .summary = "A with its bits moved B places down, of signed integers with copies of the sign before them",
             .onnx = "",
             .expression = "shiftRight(A, B)"}),
      composed("bit_shift", "shift_left or shift_right", {onnx("BitShift", 2, convertBitShift, 11)}),
      where(),
      cast(),
  };
}

} // namespace pdc::ops::Logic
