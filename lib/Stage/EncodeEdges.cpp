// Encodes what a stage sends, and decodes what it receives. The sender goes on with the exact values.
#include "pdc/Stage/StagePasses.h"

#include "pdc/IR/Builder.h"
#include "pdc/IR/Encoding.h"
#include "pdc/Transforms/GraphUtilities.h"

#include <algorithm>
#include <unordered_map>

using namespace pdc;

bool pdc::isGradientOf(const std::string& gradient, const std::string& value) {
  return gradient == value + ".gradient" || gradient.starts_with(value + ".gradient.");
}

namespace {

class Encoding {
public:
  Encoding(PassContext& context, Graph& graph, const EdgeCodecs& codecs)
      : graph_(graph), builder_(context.module, graph, context.registry, context.diags), codecs_(codecs),
        positions_(positionsOf(graph)) {}

  Status run() {
    for (GraphInput& input : graph_.inputs)
      if (input.kind == InputKind::received && isEncoded(*input.value, input.gradient))
        if (!decode(*input.value)) return failure;
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const GraphOutput output = graph_.outputs[i];
      if (output.kind != OutputKind::sent || !isEncoded(*output.value, output.isGradient)) continue;
      Value* const encoded = encode(*output.value);
      if (!encoded) return failure;
      graph_.outputs[i].value = encoded;
    }
    return success;
  }

private:
  bool isEncoded(const Value& value, bool gradient) const {
    return canBeEncoded(value.type()) &&
           (!codecs_.tensors ||
            std::any_of(codecs_.tensors->begin(), codecs_.tensors->end(), [&](const std::string& name) {
              return gradient ? isGradientOf(value.name(), name) : value.name() == name;
            }));
  }

  Attributes attributes() const { return {{"alpha", codecs_.codec.alpha}, {"columns", codecs_.codec.columns}}; }

  void annotateAs(const Operation& operation) {
    builder_.setLocation(operation.location);
    builder_.setPhase(operation.phase, operation.origin());
    builder_.setGroup(operation.group);
  }

  Value* encode(Value& value) {
    if (const auto made = encoded_.find(&value); made != encoded_.end()) return made->second;
    Operation& definer = *value.definer(); // what leaves a stage was made there
    const auto& operations = graph_.operations();
    const auto at =
        std::find_if(operations.begin(), operations.end(), [&](const auto& o) { return o.get() == &definer; });
    builder_.setInsertionPoint(at + 1 == operations.end() ? nullptr : (at + 1)->get());
    annotateAs(definer);
    Operation* const made = builder_.create("encode_rows", {&value}, attributes(), {}, {value.name() + ".encoded"});
    if (!made) return nullptr;
    made->stage = definer.stage;
    return encoded_[&value] = made->result();
  }

  /// Where it is first read. A half of the backward that both halves need is in the first of them.
  Status decode(Value& value) {
    std::vector<Operation*> readers = value.users();
    const std::string name = value.name();
    const Type type = value.type();
    if (readers.empty()) return success;
    std::sort(readers.begin(), readers.end(),
              [&](const Operation* a, const Operation* b) { return positions_.at(a) < positions_.at(b); });
    const Operation* const place = readers.front();
    const auto earliest = std::min_element(readers.begin(), readers.end(),
                                           [](const Operation* a, const Operation* b) { return a->phase < b->phase; });
    Attributes ofDecode = attributes();
    ofDecode.set("shape", type.shape);
    const Expected<Type> encoded = encodedType(type, attributes(), builder_.registry(), builder_.diags());
    if (!encoded) return failure;
    graph_.rename(&value, name + ".encoded");
    value.setType(*encoded);
    builder_.setInsertionPoint(place);
    annotateAs(**earliest);
    Operation* const made = builder_.create("decode_rows", {&value}, ofDecode, {}, {name});
    if (!made) return failure;
    made->stage = place->stage;
    graph_.replaceAllUses(&value, made->result());
    made->setOperand(0, &value);
    return success;
  }

  Graph& graph_;
  Builder builder_;
  const EdgeCodecs& codecs_;
  const Positions positions_;
  std::unordered_map<const Value*, Value*> encoded_;
};

} // namespace

Status pdc::encodeEdges(PassContext& context, const EdgeCodecs& codecs) {
  for (const StageGraphs& stage : stageGraphs(context.module))
    for (Graph* graph : {stage.training, stage.evaluation})
      if (graph && !Encoding(context, *graph, codecs).run()) return failure;
  return success;
}
