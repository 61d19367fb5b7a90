// Attention on rows that have their heads beside each other: nothing is transposed, sliced and put together for it.
#include "pdc/Transforms/Precision.h"

#include "pdc/Transforms/GraphUtilities.h"

#include "pdc/IR/Builder.h"

using namespace pdc;

Status pdc::mergeHeads(PassContext& context) {
  Expected<Graph*> graph = mainGraph(context);
  if (!graph) return failure;
  Builder builder(context.module, **graph, context.registry, context.diags);
  std::vector<Operation*> operations; // merging changes the list
  for (const auto& operation : (*graph)->operations())
    if (isForward(*operation) && operation->def().rewrites.mergeHeads) operations.push_back(operation.get());
  for (Operation* operation : operations) {
    builder.setInsertionPoint(operation);
    builder.setLocation(operation->location);
    Value* merged = operation->def().rewrites.mergeHeads(*operation, builder);
    if (context.diags.hasErrors()) return failure;
    if (!merged) continue;
    const std::string name = operation->result()->name();
    (*graph)->replaceAllUses(operation->result(), merged);
    (*graph)->rename(operation->result(), name + ".apart");
    (*graph)->rename(merged, name);
  }
  eraseDeadOperations(**graph);
  return success;
}
