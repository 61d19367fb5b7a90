#include "pdc/IR/Encoding.h"

using namespace pdc;

bool pdc::canBeEncoded(const Type& type) {
  return type.element == ElementType::f32 && type.layout == plain && type.rank() > 0 && type.elements() > 0;
}

Expected<Type> pdc::encodedType(const Type& type, const Attributes& attributes, const OpRegistry& registry,
                                Diagnostics& diags) {
  const InferContext infer{{&type}, attributes, {}, diags};
  const Expected<std::vector<Type>> types = registry.find("encode_rows")->infer(infer);
  if (!types) return failure;
  return types->front();
}
