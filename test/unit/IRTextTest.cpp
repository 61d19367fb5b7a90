// LINK: pdcIR
// The text form of random modules: printing, parsing and printing again yields the same bytes and an equal module.
#include "IRTesting.h"

#include <bit>
#include <random>

using namespace pdc;

namespace {
/// Builds random modules that the verifier accepts and that use every part of the text form.
class Generator {
public:
  Generator(const OpRegistry& registry, unsigned seed) : registry_(registry), random_(seed) {}

  std::unique_ptr<Module> module() {
    auto module = std::make_unique<Module>();
    module->name = name();
    if (chance()) module->file = name() + ".onnx";
    for (int i = pick(4); i > 0; --i) addParameter(*module);
    for (int i = pick(3); i > 0; --i) addGraph(*module);
    return module;
  }

private:
  int pick(int count) { return std::uniform_int_distribution<int>(0, count - 1)(random_); }
  bool chance() { return pick(2) == 0; }

  std::string name() {
    static const std::string alphabet = "abcXYZ019_./-$ :%@\"\\\n\t\x01\x7f\xc3\xa4{}";
    std::string text;
    for (int i = pick(6); i >= 0; --i)
      text += alphabet[static_cast<std::size_t>(pick(static_cast<int>(alphabet.size())))];
    return text;
  }
  Type type(ElementType element) {
    Type result{element, {}};
    for (int i = pick(4); i > 0; --i) result.shape.push_back(pick(4));
    return result;
  }
  Tensor tensor() {
    const Type plainType = type(static_cast<ElementType>(pick(13)));
    std::vector<std::byte> bytes(static_cast<std::size_t>(plainType.bytes()));
    for (std::byte& byte : bytes)
      byte = static_cast<std::byte>(plainType.element == ElementType::boolean ? pick(2) : pick(256));
    return Tensor(plainType, bytes);
  }
  double number() { return pick(4) == 0 ? std::bit_cast<double>(random_() * 0x100000001ull) : pick(100) / 7.0; }

  void addParameter(Module& module) {
    const std::string wanted = name();
    if (module.findParameter(wanted)) return;
    Parameter parameter{.name = wanted, .type = type(ElementType::f32)};
    parameter.role = static_cast<ParameterRole>(pick(3));
    if (chance())
      parameter.reference = {
          .file = name(), .offset = pick(1000), .length = pick(1000), .stored = parameter.type.shape};
    if (chance()) {
      parameter.reference.stored = {pick(5), pick(5)};
      parameter.reference.permutation = {1, 0};
    }
    if (chance()) parameter.location.node = name();
    module.addParameter(std::move(parameter));
  }

  void addGraph(Module& module) {
    const std::string wanted = name();
    if (module.findGraph(wanted)) return;
    Graph& graph = *module.graphs.emplace_back(std::make_unique<Graph>(wanted));
    auto fresh = [&] {
      std::string text = name();
      while (module.findParameter(text)) text += "x";
      return text;
    };
    for (int i = pick(4); i > 0; --i) {
      graph.addInput(type(ElementType::f32), fresh(), static_cast<InputKind>(pick(4)));
      GraphInput& input = graph.inputs.back();
      if (input.kind == InputKind::received) input.peer = pick(5), input.gradient = chance();
    }
    std::vector<Value*> values;
    for (const GraphInput& input : graph.inputs) values.push_back(input.value);
    for (const auto& parameter : module.parameters)
      if (chance()) values.push_back(graph.parameterValue(*parameter));
    for (int i = pick(10); i > 0; --i) addOperation(graph, values, fresh());
    if (!values.empty())
      for (int i = pick(6); i > 0; --i) addOutput(module, graph, values);
  }

  void addOperation(Graph& graph, std::vector<Value*>& values, const std::string& wanted) {
    Module unused;
    Diagnostics diags(nullptr);
    Builder b(unused, graph, registry_, diags);
    Operation* operation = nullptr;
    const std::vector<std::string> names = {chance() ? wanted : ""};
    Value* any = values.empty() ? nullptr : values[static_cast<std::size_t>(pick(static_cast<int>(values.size())))];
    switch (any && isFloat(any->type().element) ? pick(4) : 0) {
    case 0: operation = b.create("constant", {}, {{"value", tensor()}}, {}, names); break;
    case 1:
      operation = b.create("scale", {any},
                           {{"alpha", number()},
                            {"numbers", std::vector<double>(static_cast<std::size_t>(pick(3)), number())},
                            {"names", std::vector<std::string>(static_cast<std::size_t>(pick(3)), name())},
                            {"flag", chance()},
                            {"text", name()},
                            {"count", static_cast<std::int64_t>(random_()) - pick(2) * (std::int64_t{1} << 62)}},
                           {}, names);
      break;
    case 2: operation = b.create("total", {any}, {}, {true, chance()}, names); break;
    case 3:
      operation = b.create("elementwise", {any, any},
                           {{"expressions", std::vector<std::string>{"a0 * a1", "a0 - 0.1"}}}, {}, names);
      break;
    }
    ASSERT_NE(operation, nullptr);
    if (graph.operations().size() > 1 && chance()) {
      Operation* origin =
          graph.operations()[static_cast<std::size_t>(pick(static_cast<int>(graph.operations().size()) - 1))].get();
      if (origin->phase == Phase::forward) {
        operation->phase = chance() ? Phase::inputGradient : Phase::weightGradient;
        operation->setOrigin(origin);
      }
    }
    if (chance()) operation->group = pick(10);
    if (chance()) operation->stage = pick(10);
    if (chance()) operation->location.node = name();
    for (Value* result : operation->results())
      if (result) values.push_back(result);
  }

  void addOutput(Module& module, Graph& graph, const std::vector<Value*>& values) {
    Value* value = values[static_cast<std::size_t>(pick(static_cast<int>(values.size())))];
    GraphOutput output{.kind = static_cast<OutputKind>(pick(8)), .value = value};
    switch (output.kind) {
    case OutputKind::result: output.name = name(); break;
    case OutputKind::loss:
    case OutputKind::term:
      if (output.kind == OutputKind::term) output.name = name();
      if (!isFloat(value->type().element) || !value->type().shape.empty()) return;
      break;
    case OutputKind::prediction: break;
    case OutputKind::load:
      if (value->type().element != ElementType::f32 || value->type().rank() != 1) return;
      output.name = name();
      break;
    case OutputKind::gradient:
    case OutputKind::state:
      // Only where the types agree.
      for (const auto& parameter : module.parameters) {
        const bool isState = output.kind == OutputKind::state;
        const bool role = parameter->role == (isState ? ParameterRole::state : ParameterRole::trained);
        if (role && parameter->type.shape == value->type().shape && parameter->type.element == value->type().element)
          output.parameter = parameter.get();
      }
      if (!output.parameter) return;
      for (const GraphOutput& other : graph.outputs)
        if (other.kind == OutputKind::state && other.parameter == output.parameter) return;
      break;
    case OutputKind::sent: output.peer = pick(5), output.isGradient = chance(); break;
    }
    graph.outputs.push_back(output);
  }

  const OpRegistry& registry_;
  std::mt19937 random_;
};
} // namespace

using IRTextTest = IRTest;

TEST_F(IRTextTest, RandomModulesReadBack) {
  std::size_t operations = 0, outputs = 0;
  for (unsigned seed = 0; seed < 1000; ++seed) {
    const std::unique_ptr<Module> module = Generator(registry, seed).module();
    ASSERT_TRUE(verify(*module, diags)) << messages() << print(*module);
    const std::string text = print(*module);
    const Expected<std::unique_ptr<Module>> read = parseModule(text, "test.pdir", registry, diags);
    ASSERT_TRUE(read) << "seed " << seed << "\n" << messages() << text;
    ASSERT_EQ(print(**read), text) << "seed " << seed;
    ASSERT_TRUE(verify(**read, diags)) << messages() << text;
    for (std::size_t g = 0; g < module->graphs.size(); ++g) {
      const Graph &a = *module->graphs[g], &b = *(*read)->graphs[g];
      operations += a.operations().size();
      outputs += a.outputs.size();
      // A clone prints alike, too.
      ASSERT_EQ(print(*clone(a, a.name())), print(a));
      ASSERT_EQ(a.operations().size(), b.operations().size());
      for (std::size_t i = 0; i < a.operations().size(); ++i) {
        const Operation &x = *a.operations()[i], &y = *b.operations()[i];
        ASSERT_EQ(x.phase, y.phase);
        ASSERT_EQ(x.group, y.group);
        ASSERT_EQ(x.stage, y.stage);
        ASSERT_EQ(x.location.node, y.location.node);
        ASSERT_EQ(x.origin() != nullptr, y.origin() != nullptr);
        if (!x.attributes.has("value")) continue;
        ASSERT_EQ(x.attributes.get<Tensor>("value"), y.attributes.get<Tensor>("value")) << text;
      }
    }
    for (std::size_t p = 0; p < module->parameters.size(); ++p) {
      ASSERT_EQ(module->parameters[p]->reference, (*read)->parameters[p]->reference);
      ASSERT_EQ(module->parameters[p]->role, (*read)->parameters[p]->role);
    }
  }
  // The generator has not become empty.
  EXPECT_GT(operations, 3000u);
  EXPECT_GT(outputs, 500u);
}

TEST_F(IRTextTest, ErrorsHaveLineAndColumn) {
  EXPECT_FALSE(parseModule("module @m {\n  graph @g(%x: f32[2]) {\n    %y = exp %z : f32[2]\n  }\n}\n", "a.pdir",
                           registry, diags));
  EXPECT_EQ(messages(), "a.pdir:3:14: error: '%z' is not defined\n");
}

TEST_F(IRTextTest, IntegersAreNumbersWhereTheOpWantsNumbers) {
  const auto module =
      parse("module @m { graph @g(%x: f32[2]) { %y = scale %x {alpha = 3, numbers = [1, 2.5]} : f32[2] } }");
  const Operation& operation = *module->findGraph("g")->operations()[0];
  EXPECT_EQ(operation.attributes.getFloat("alpha"), 3.0);
  EXPECT_EQ(operation.attributes.get<std::vector<double>>("numbers"), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(operation.attributes.get<std::vector<std::string>>("names").size(), 0u);
}

/// No prefix of a text, and no text with one byte changed, makes the parser do anything but succeed or report.
TEST_F(IRTextTest, TruncatedAndChangedTextsAreReported) {
  std::string text;
  for (unsigned seed = 0; text.size() < 1500; ++seed) text = print(*Generator(registry, seed).module());
  for (std::size_t length = 0; length + 2 < text.size(); ++length) {
    Diagnostics local(nullptr);
    EXPECT_FALSE(parseModule(text.substr(0, length), "t", registry, local)) << length;
    EXPECT_TRUE(local.hasErrors());
  }
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    std::string changed = text;
    changed[random() % changed.size()] = static_cast<char>(random());
    Diagnostics local(nullptr);
    const bool ok = static_cast<bool>(parseModule(changed, "t", registry, local));
    EXPECT_EQ(ok, !local.hasErrors());
  }
}
