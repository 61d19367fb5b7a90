// What is the same for linear layers on every target.
#include "pdcrt/kernels/Linear.h"

namespace pdcrt {

std::string Linear::profileName(const Options& o) {
  std::string text = "Linear{.rows = " + std::to_string(o.rows) + ", .inputs = " + std::to_string(o.inputs) +
                     ", .outputs = " + std::to_string(o.outputs);
  if (o.transposed) text += ", .transposed = true";
  if (o.bias) text += ", .bias = true";
  if (o.element != Element::f32)
    text += std::string(", .element = pdcrt::Element::") + (o.element == Element::bf16 ? "bf16" : "f16");
  if (o.wideGradient) text += ", .wideGradient = true";
  return text + "}";
}

} // namespace pdcrt
