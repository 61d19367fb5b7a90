// LINK: pdcDriver
// The program that is generated for each op against the op's reference, on all of its examples.
#include "OpsExamples.h"

#include "pdc/Driver/CpuEngine.h"

using namespace pdc;
using namespace pdc::testing;

namespace {

/// Whether one program computes it by itself.
bool isOfOneMember(const OpDef& def) {
  return def.kind != OpKind::composed && def.kind != OpKind::collective;
}

/// All examples of an op as one graph, whose values are told apart by a suffix, with all results as outputs.
std::unique_ptr<Module> moduleOf(const OpDef& def) {
  std::string inputs, body;
  for (std::size_t i = 0; i < def.examples.size(); ++i) {
    std::string text = def.examples[i];
    // "%x" becomes "%x_e3": names keep their beginning, by which inputs are chosen.
    std::string renamed;
    for (std::size_t at = 0; at < text.size(); ++at) {
      renamed += text[at];
      const auto isPart = [&](std::size_t p) {
        return std::isalnum(static_cast<unsigned char>(text[p])) || text[p] == '_';
      };
      if (text[at] != '%') continue;
      while (isPart(at + 1)) renamed += text[++at];
      renamed += "_e" + std::to_string(i);
    }
    const std::size_t end = renamed.find(") {\n");
    const std::string own = renamed.substr(1, end - 1);
    inputs += (inputs.empty() || own.empty() ? "" : ", ") + own;
    body += renamed.substr(end + 4, renamed.size() - end - 5);
  }
  auto module = parse("module @" + def.name + " {\n  graph @main(" + inputs + ") {\n" + body + "  }\n}\n");
  if (!module) return nullptr;
  Graph& graph = *module->graphs.front();
  for (const auto& operation : graph.operations())
    for (Value* result : operation->results())
      if (result)
        graph.outputs.push_back(
            {.kind = OutputKind::result, .value = result, .name = result->name(), .parameter = nullptr});
  return module;
}

class OpsEngine : public ::testing::TestWithParam<std::size_t> {
protected:
  struct Programs {
    std::vector<const OpDef*> defs;
    std::vector<std::unique_ptr<Module>> modules;
    std::unique_ptr<CpuEngine> engine;
  };
  /// Built once: one compilation for all ops.
  static const Programs& programs() {
    static const Programs* built = [] {
      auto* p = new Programs;
      std::vector<const Module*> pointers;
      for (const OpDef* def : allOps().all())
        if (isOfOneMember(*def)) {
          p->defs.push_back(def);
          p->modules.push_back(moduleOf(*def));
          pointers.push_back(p->modules.back().get());
        }
      Diagnostics diags(nullptr);
      auto engine = CpuEngine::build(pointers, diags);
      EXPECT_TRUE(engine) << messages(diags);
      if (engine) p->engine = *std::move(engine);
      return p;
    }();
    return *built;
  }
};

std::vector<std::size_t> indices() {
  std::vector<std::size_t> all;
  for (const OpDef* def : allOps().all())
    if (isOfOneMember(*def)) all.push_back(all.size());
  return all;
}

const OpDef& defAt(std::size_t index) {
  for (const OpDef* def : allOps().all())
    if (isOfOneMember(*def) && index-- == 0) return *def;
  std::abort();
}

} // namespace

TEST_P(OpsEngine, GeneratedProgramAgreesWithReference) {
  ASSERT_TRUE(programs().engine);
  const Graph& graph = *programs().modules[GetParam()]->graphs.front();
  const auto inputs = Inputs(3).of(graph);
  Diagnostics diags(nullptr);
  const auto expected = interpret(graph, inputs, {}, Precision::f64, diags, 5, 2);
  const auto actual = programs().engine->run(GetParam(), inputs, {}, diags, 5, 2);
  ASSERT_TRUE(expected && actual) << messages(diags);
  for (const GraphOutput& output : graph.outputs) {
    const auto found = actual->outputs.find(output.name);
    ASSERT_NE(found, actual->outputs.end()) << output.name;
    EXPECT_EQ(found->second.type().element, output.value->type().element);
    EXPECT_EQ(found->second.shape(), output.value->type().shape);
    EXPECT_LT(errorOf(found->second, expected->outputs.at(output.name)),
              isFloat(output.value->type().element) ? 2e-6 : 1e-300)
        << output.name << " of\n"
        << print(graph);
  }
}

INSTANTIATE_TEST_SUITE_P(All, OpsEngine, ::testing::ValuesIn(indices()),
                         [](const auto& tested) { return defAt(tested.param).name; });
