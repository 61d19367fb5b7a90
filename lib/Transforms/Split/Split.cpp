#include "pdc/Transforms/Split.h"

#include "Split/ChooseClasses.h"
#include "Split/ReorderExperts.h"
#include "Split/Rewrite.h"
#include "Split/SplitTokens.h"
#include "pdc/Transforms/GraphUtilities.h"

using namespace pdc;

static Expected<Choice> choose(const Graph& graph, const LoopTable& loops, const SplitOptions& options,
                               Diagnostics& diags, const Choice* training = nullptr) {
  return options.tokens ? chooseTokens(graph, loops, options, diags, training) : chooseClasses(graph, loops, options);
}

/// Puts a value together as another choice does with the same one.
static void joinAs(Choice& own, const Value& value, const Choice& other, const Value& same) {
  own.joined.erase(&value), own.gathered.erase(&value);
  if (const auto found = other.joined.find(&same); found != other.joined.end())
    own.joined.emplace(&value, found->second);
  if (other.gathered.contains(&same)) own.gathered.insert(&value);
}

/// Divisions of an evaluation: each operation that a training computes in its forward, too, is divided as there, so
/// that stages send the same values; others as the parts of their operands say.
static Expected<Choice> choiceFor(const Graph& evaluation, const LoopTable& loops, const Graph& training,
                                  const Choice& choice, const SplitOptions& options, Diagnostics& diags) {
  Choice own;
  if (options.tokens) {
    Expected<Choice> alone = choose(evaluation, loops, options, diags, &choice);
    if (!alone) return failure;
    own = std::move(*alone);
  } else {
    own.divisions = divisionsFor(evaluation, loops, choice.parameters, options.members);
  }
  own.parameters = choice.parameters;
  for (const auto& operation : evaluation.operations()) {
    const Value* same = operation->result() ? training.find(operation->result()->name()) : nullptr;
    if (!same || !same->definer() || &same->definer()->def() != &operation->def()) continue;
    own.divisions.erase(operation.get());
    if (const auto found = choice.divisions.find(same->definer()); found != choice.divisions.end())
      own.divisions.emplace(operation.get(), found->second);
    for (std::size_t i = 0; i < operation->results().size(); ++i)
      if (operation->result(i) && same->definer()->result(i))
        joinAs(own, *operation->result(i), choice, *same->definer()->result(i));
  }
  return own;
}

std::string pdc::suffixOf(const SplitOptions& options) {
  const char* name = options.experts ? ".ep" : options.weights ? ".tps" : options.tokens ? ".sp" : ".tp";
  return name + std::to_string(options.members);
}

Expected<TeamParts> pdc::partsOverTeam(PassContext& context, const SplitOptions& options) {
  const Expected<Graph*> main = mainGraph(context);
  if (!main) return failure;
  const LoopTable loops(**main);
  const Expected<Choice> choice = choose(**main, loops, options, context.diags);
  if (!choice) return failure;
  TeamParts parts;
  for (const auto& [parameter, form] : choice->parameters)
    if (form.isSplit()) parts.parameters[parameter->name] = {form, parameter->type};
  for (const auto& operation : (*main)->operations()) {
    const auto division = choice->divisions.find(operation.get());
    for (std::size_t i = 0; i < operation->results().size(); ++i) {
      const Value* result = operation->result(i);
      if (!result || division == choice->divisions.end()) continue;
      Form form = formOfResult(loops.of(*operation), i, division->second);
      if (const auto joined = choice->joined.find(result); form.isPartial() && joined != choice->joined.end())
        form = joined->second;
      if (form.isSplit()) parts.values[result->name()] = {form, result->type()};
    }
  }
  return parts;
}

Status pdc::splitOverTeam(PassContext& context, const SplitOptions& options, std::vector<SplitClass>* classes,
                          std::vector<PlacedLayer>* placed) {
  const Expected<Graph*> whole = mainGraph(context);
  if (!whole) return failure;
  const bool places = options.experts && !options.orders.empty();
  ExpertOrders orders;
  std::vector<PlacedLayer> layers;
  std::unique_ptr<Graph> placedMain, placedEvaluation;
  if (places && !(placedMain = reorderExperts(context, **whole, options, orders, layers))) return failure;
  const Graph& main = places ? *placedMain : **whole;
  const LoopTable loops(main);
  Expected<Choice> choice = choose(main, loops, options, context.diags);
  if (!choice) return failure;
  const std::string suffix = suffixOf(options);
  const auto rewrite = [&](const Graph& graph, const LoopTable& of, const Choice& how, const Graph* training) {
    auto member = rewriteForTeam(context, graph, graph.name() + suffix, of, how, options, training);
    if (member) member->team.orders = orders;
    return member && verifySplit(graph, *member, context.diags) ? std::move(member) : nullptr;
  };
  std::vector<std::unique_ptr<Graph>> made;
  made.push_back(rewrite(main, loops, *choice, nullptr));
  if (!made.back()) return failure;
  if (const Graph* evaluation = context.module.findGraph("evaluate")) {
    if (places && !(placedEvaluation = reorderExpertsAs(context, *evaluation, options.members, orders))) return failure;
    if (places) evaluation = placedEvaluation.get();
    const LoopTable evaluationLoops(*evaluation);
    const Expected<Choice> own = choiceFor(*evaluation, evaluationLoops, main, *choice, options, context.diags);
    if (!own) return failure;
    made.push_back(rewrite(*evaluation, evaluationLoops, *own, made.front().get()));
    if (!made.back()) return failure;
  }
  for (std::unique_ptr<Graph>& graph : made) context.module.graphs.push_back(std::move(graph));
  if (classes) *classes = std::move(choice->classes);
  if (placed) *placed = std::move(layers);
  return success;
}
