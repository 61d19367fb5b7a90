// Repeats, in the backward, the forward's conversions of parameters to low precision. Linear in the size of the graph.
#include "pdc/Transforms/Precision.h"

#include "GraphUtilities.h"

#include <algorithm>

using namespace pdc;

namespace {

bool convertsParameter(const Operation& operation) {
  const auto& operands = operation.operands();
  return isForward(operation) && operation.def().kind == OpKind::elementwise && operands.size() == 1 &&
         operands[0]->parameter() && isLowPrecision(operation.result()->type().element);
}

/// The backward operations that read the result of `conversion`, in program order.
std::vector<Operation*> readersOf(const Operation& conversion, const Positions& positions) {
  std::vector<Operation*> readers;
  for (Operation* user : conversion.result()->users())
    if (!isForward(*user)) readers.push_back(user);
  std::sort(readers.begin(), readers.end(),
            [&](const Operation* a, const Operation* b) { return positions.at(a) < positions.at(b); });
  return readers;
}

void repeat(Graph& graph, Operation& conversion, const std::vector<Operation*>& readers) {
  Value* const result = conversion.result();
  Operation* copy =
      graph.addOperation(conversion.def(), conversion.operands(), {&result->type()}, conversion.attributes,
                         conversion.location, readers.front(), {result->name() + ".again"});
  copy->phase = readers.front()->phase;
  copy->setOrigin(&conversion);
  copy->again = true;
  copy->group = conversion.group;
  for (Operation* reader : readers) {
    copy->phase = std::min(copy->phase, reader->phase);
    for (std::size_t i = 0; i < reader->operands().size(); ++i)
      if (reader->operand(i) == result) reader->setOperand(i, copy->result());
  }
}

} // namespace

Status pdc::convertAgain(PassContext& context) {
  Expected<Graph*> graph = mainGraph(context);
  if (!graph) return failure;
  const Positions positions = positionsOf(**graph);
  std::vector<Operation*> conversions; // copying changes the list
  for (const auto& operation : (*graph)->operations())
    if (convertsParameter(*operation)) conversions.push_back(operation.get());
  for (Operation* conversion : conversions)
    if (const std::vector<Operation*> readers = readersOf(*conversion, positions); !readers.empty())
      repeat(**graph, *conversion, readers);
  return success;
}
