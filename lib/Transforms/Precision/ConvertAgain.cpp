// Repeats, in the backward, the forward's conversions of parameters to low precision, and of what is in low precision
// to f32: the narrower of both waits for the backward. pdc/Stage/StagePasses.h has the way back, keepConversions.
// Linear in the size of the graph.
#include "pdc/Transforms/Precision.h"

#include "pdc/Transforms/GraphUtilities.h"

#include <algorithm>

using namespace pdc;

static bool isConversion(const Operation& operation) {
  return isForward(operation) && operation.def().kind == OpKind::elementwise && operation.operands().size() == 1 &&
         operation.results().size() == 1 && operation.result();
}

bool pdc::convertsParameter(const Operation& operation) {
  return isConversion(operation) && operation.operand(0)->parameter() &&
         isLowPrecision(operation.result()->type().element);
}

bool pdc::movesConverted(const Operation& operation) {
  return isForward(operation) && operation.operands().size() == 1 && operation.results().size() == 1 &&
         operation.operand(0)->definer() && convertsParameter(*operation.operand(0)->definer()) &&
         costOf(operation).flops == 0;
}

namespace {

bool widens(const Operation& operation) {
  return isConversion(operation) && onlyConverts(operation) && isLowPrecision(operation.operand(0)->type().element) &&
         operation.result()->type().element == ElementType::f32;
}

/// Others would still read the conversion from memory, and may be moved before it when they take an elementwise
/// neighbour up.
bool fusesWith(const Operation& conversion, const Operation& reader) {
  return reader.group == conversion.group && reader.def().kind == OpKind::elementwise;
}

/// The backward operations that read the result of `conversion`, in program order. What others get from another group
/// travels once, in whatever type.
std::vector<Operation*> readersOf(const Operation& conversion, const Positions& positions) {
  std::vector<Operation*> readers;
  for (Operation* user : conversion.result()->users())
    if (!isForward(*user) && (!widens(conversion) || fusesWith(conversion, *user))) readers.push_back(user);
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

/// Repeats those for which `isRepeated` holds.
void repeatAll(Graph& graph, bool (*isRepeated)(const Operation&)) {
  const Positions positions = positionsOf(graph);
  std::vector<Operation*> conversions; // copying changes the list
  for (const auto& operation : graph.operations())
    if (isRepeated(*operation)) conversions.push_back(operation.get());
  for (Operation* conversion : conversions)
    if (const std::vector<Operation*> readers = readersOf(*conversion, positions); !readers.empty())
      repeat(graph, *conversion, readers);
}

} // namespace

void pdc::widenAgain(Graph& graph) {
  repeatAll(graph, widens);
}

Status pdc::convertAgain(PassContext& context) {
  Expected<Graph*> graph = mainGraph(context);
  if (!graph) return failure;
  repeatAll(**graph, movesConverted); // the copies read conversions
  repeatAll(**graph, convertsParameter);
  return success;
}
