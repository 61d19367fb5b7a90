// What is the same for attention on every target.
#include "pdcrt/kernels/Attention.h"

namespace pdcrt {

bool Attention::takesFused(const Options& o) {
  const auto fits = [](std::int64_t size) { return size % 8 == 0 && size <= 128; };
  return (o.element == Element::bf16 || o.element == Element::f16) && fits(o.size) && fits(o.valueSize) &&
         (o.bias.rank == 0 || (!o.hides && o.keys % 8 == 0)) && o.ratio == 0;
}

std::string Attention::profileName(const Options& o) {
  std::string text = "Attention{.batch = " + std::to_string(o.batch);
  const auto add = [&](const char* name, std::int64_t value) {
    text += std::string(", .") + name + " = " + std::to_string(value);
  };
  add("heads", o.heads), add("groups", o.groups), add("queries", o.queries), add("keys", o.keys);
  add("size", o.size), add("valueSize", o.valueSize);
  if (o.causal) text += ", .causal = true";
  for (int axis = 0; axis < o.bias.rank; ++axis)
    text += (axis == 0 ? ", .bias = {" : ", ") + std::to_string(o.bias.dims[axis]);
  if (o.bias.rank > 0) text += "}";
  if (o.element != Element::f32)
    text += std::string(", .element = pdcrt::Element::") + (o.element == Element::bf16 ? "bf16" : "f16");
  return text + "}";
}

} // namespace pdcrt
