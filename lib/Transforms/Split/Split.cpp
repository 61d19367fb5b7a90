#include "pdc/Transforms/Split.h"

#include "Split/ChooseClasses.h"
#include "Split/Rewrite.h"
#include "pdc/Transforms/GraphUtilities.h"

using namespace pdc;

/// Divisions of an evaluation: each operation that a training computes in its forward, too, is divided as there, so
/// that stages send the same values; others as the parts of their operands say.
static std::unordered_map<const Operation*, Division> divisionsOf(const Graph& evaluation, const LoopTable& loops,
                                                                  const Graph& training, const Choice& choice,
                                                                  std::int64_t members) {
  std::unordered_map<const Operation*, Division> divisions =
      divisionsFor(evaluation, loops, choice.parameters, members);
  for (const auto& operation : evaluation.operations()) {
    const Value* same = operation->result() ? training.find(operation->result()->name()) : nullptr;
    if (!same || !same->definer() || &same->definer()->def() != &operation->def()) continue;
    divisions.erase(operation.get());
    if (const auto found = choice.divisions.find(same->definer()); found != choice.divisions.end())
      divisions.emplace(operation.get(), found->second);
  }
  return divisions;
}

Status pdc::splitOverTeam(PassContext& context, const SplitOptions& options, std::vector<SplitClass>* classes) {
  const Expected<Graph*> main = mainGraph(context);
  if (!main) return failure;
  const LoopTable loops(**main);
  Choice choice = chooseClasses(**main, loops, options);
  const std::string suffix = ".tp" + std::to_string(options.members);
  std::unique_ptr<Graph> member = rewriteForTeam(context, **main, (*main)->name() + suffix, loops, choice.divisions,
                                                 choice.parameters, options.members);
  if (!member || !verifySplit(**main, *member, context.diags)) return failure;
  std::vector<std::unique_ptr<Graph>> made;
  made.push_back(std::move(member));
  if (const Graph* evaluation = context.module.findGraph("evaluate")) {
    const LoopTable evaluationLoops(*evaluation);
    made.push_back(rewriteForTeam(context, *evaluation, evaluation->name() + suffix, evaluationLoops,
                                  divisionsOf(*evaluation, evaluationLoops, **main, choice, options.members),
                                  choice.parameters, options.members, made.front().get()));
    if (!made.back() || !verifySplit(*evaluation, *made.back(), context.diags)) return failure;
  }
  for (std::unique_ptr<Graph>& graph : made) context.module.graphs.push_back(std::move(graph));
  if (classes) *classes = std::move(choice.classes);
  return success;
}
