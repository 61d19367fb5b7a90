// LINK: pdcOps
// Every op is divided along every index that it names: what the members of a team compute of parts makes the whole.
#include "OpsExamples.h"

#include "pdc/IR/Loops.h"
#include "pdc/IR/TeamInterpreter.h"

#include <algorithm>
#include <map>

using namespace pdc;
using namespace pdc::testing;

namespace {

/// An example, with the values of its last operation's operands and results in f64.
struct Example {
  explicit Example(const std::string& text) : module(parse(moduleText(text))) {
    if (!module) return;
    Graph& graph = *module->graphs.front();
    op = graph.operations().back().get();
    auto keep = [&](const Value* value, const std::string& name) {
      if (value)
        graph.outputs.push_back(
            {.kind = OutputKind::result, .value = const_cast<Value*>(value), .name = name, .parameter = nullptr});
    };
    for (std::size_t i = 0; i < op->operands().size(); ++i) keep(op->operand(i), "operand" + std::to_string(i));
    for (std::size_t i = 0; i < op->results().size(); ++i) keep(op->result(i), "result" + std::to_string(i));
    Diagnostics diags(nullptr);
    const auto run = interpret(graph, Inputs(1).of(graph), {}, Precision::f64, diags, 5, 2);
    EXPECT_TRUE(run) << messages(diags) << text;
    if (run) values = run->outputs;
  }

  std::unique_ptr<Module> module;
  Operation* op = nullptr;
  std::map<std::string, Tensor> values;
};

/// The graph of a member: the operands are parameters in the forms of a division, and what it makes of them is put
/// together.
struct MemberGraph {
  MemberGraph(const Operation& op, const Loops& loops, const Division& division)
      : graph("part"), b(module, graph, allOps(), diags) {
    graph.team.members = division.parts;
    std::vector<Value*> operands;
    Value* added = nullptr;
    const bool isSum =
        op.result(0) && formOfResult(loops, 0, division) == Form::partial(Combine::sum) && loops.added.has_value();
    for (std::size_t i = 0; i < op.operands().size(); ++i) {
      Value* operand = op.operand(i) ? operandOf(op, i, formOfOperand(loops, i, division)) : nullptr;
      const bool isAdded = isSum && loops.added->operand == static_cast<int>(i);
      if (isAdded) added = operand;
      operands.push_back(isAdded ? nullptr : operand);
    }
    b.setLocation(op.location);
    const std::vector<Value*> results = divided(op, loops, division, operands, b);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (!op.result(i)) continue;
      Value* whole = put(results[i], formOfResult(loops, i, division), i == 0 ? added : nullptr,
                         loops.added ? loops.added->axis : -1);
      ok = ok && whole;
      graph.outputs.push_back(
          {.kind = OutputKind::result, .value = whole, .name = "result" + std::to_string(i), .parameter = nullptr});
    }
    ok = ok && !results.empty();
  }

  bool ok = true;
  Module module;
  Graph graph;
  Diagnostics diags{nullptr};

private:
  Value* operandOf(const Operation& op, std::size_t i, const Form& form) {
    Parameter* parameter = module.addParameter({.name = "operand" + std::to_string(i),
                                                .type = op.operand(i)->type(),
                                                .role = ParameterRole::frozen,
                                                .reference = {},
                                                .location = {}});
    if (form.isSplit()) graph.team.parts[parameter] = form;
    return graph.parameterValue(*parameter);
  }

  Value* put(Value* value, const Form& form, Value* added, int axis) {
    Attributes attributes{{"members", graph.team.members}};
    if (form.isWhole()) return value;
    if (form.isSplit()) {
      attributes.set("from_axis", std::int64_t{form.axis});
      attributes.set("from_blocks", form.blocks);
      attributes.set("from_padded", form.padded);
      return b.value("all_gather", {value}, attributes);
    }
    if (added) {
      attributes.set("added_axis", std::int64_t{axis});
      return b.value("all_reduce", {value, added}, attributes);
    }
    static const std::map<Combine, const char*> reductions = {{Combine::sum, "all_reduce"},
                                                              {Combine::mean, "all_reduce_mean"},
                                                              {Combine::max, "all_reduce_max"},
                                                              {Combine::min, "all_reduce_min"}};
    return b.value(reductions.at(form.combine), {value}, attributes);
  }

  Builder b;
};

std::string describe(const Operation& op, const Division& division) {
  return op.def().name + " of " + toString(op.operand(0) ? op.operand(0)->type() : Type{}) + ", index " +
         std::to_string(division.index) + " in " + std::to_string(division.blocks) + " blocks of " +
         std::to_string(division.parts) + " parts";
}

void expectTheWhole(const Example& example, const Loops& loops, const Division& division) {
  const Operation& op = *example.op;
  const std::string what = describe(op, division);
  MemberGraph member(op, loops, division);
  ASSERT_TRUE(member.ok) << messages(member.diags) << what;
  std::map<std::string, Tensor> operands;
  for (const auto& parameter : member.module.parameters) operands[parameter->name] = example.values.at(parameter->name);
  const auto run = interpretTeam(member.graph, {}, operands, Precision::f64, member.diags, 5, 2);
  ASSERT_TRUE(run) << messages(member.diags) << what;
  const bool hasCollectives =
      std::any_of(member.graph.operations().begin(), member.graph.operations().end(),
                  [](const auto& operation) { return operation->def().split.forms != nullptr; });
  for (const auto& [name, made] : run->outputs) {
    const Tensor& whole = example.values.at(name);
    const auto i = static_cast<std::size_t>(std::stoi(name.substr(6)));
    ASSERT_EQ(made.type(), whole.type()) << what;
    // A free index changes no bit, where the members tell each other nothing on the way.
    const bool isExact = !formOfResult(loops, i, division).isPartial() && (!op.def().split.divide || !hasCollectives);
    EXPECT_LE(errorOf(made, whole), isExact ? 0 : 1e-12) << name << " of " << what;
  }
}

class OpLoops : public ::testing::TestWithParam<const OpDef*> {};

} // namespace

TEST_P(OpLoops, PartsMakeTheWhole) {
  const OpDef& def = *GetParam();
  if (def.kind == OpKind::collective) GTEST_SKIP() << "is what members do together";
  int divisions = 0, indices = 0;
  for (const std::string& text : def.examples) {
    const Example example(text);
    if (example.values.empty()) continue;
    const Loops loops = loopsOf(*example.op);
    indices += static_cast<int>(loops.sizes.size());
    for (std::size_t index = 0; index < loops.sizes.size(); ++index)
      for (std::int64_t parts : {2, 3})
        for (std::int64_t blocks : {1, 2, 3}) {
          const Division division{static_cast<int>(index), parts, blocks};
          if (!canDivide(*example.op, loops, division)) continue;
          ++divisions;
          expectTheWhole(example, loops, division);
        }
  }
  if (indices == 0) GTEST_SKIP() << "every member computes all of it";
  EXPECT_GT(divisions, 0) << "no example has an index that 2 or 3 divide";
}

INSTANTIATE_TEST_SUITE_P(All, OpLoops, ::testing::ValuesIn(allOps().all()),
                         [](const auto& tested) { return tested.param->name; });
