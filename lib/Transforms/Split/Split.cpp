#include "pdc/Transforms/Split.h"

#include "Split/ChooseClasses.h"
#include "Split/Rewrite.h"
#include "pdc/Transforms/GraphUtilities.h"

using namespace pdc;

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
                                  divisionsFor(*evaluation, evaluationLoops, choice.parameters, options.members),
                                  choice.parameters, options.members));
    if (!made.back() || !verifySplit(*evaluation, *made.back(), context.diags)) return failure;
  }
  for (std::unique_ptr<Graph>& graph : made) context.module.graphs.push_back(std::move(graph));
  if (classes) *classes = std::move(choice.classes);
  return success;
}
