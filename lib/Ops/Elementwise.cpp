// The generic elementwise op: any expressions of any operands, with broadcasting. Fusion merges chains into it.
#include "Shared/Define.h"

namespace pdc::ops::Elementwise {

std::vector<OpDef> define() {
  return {{
      .name = "elementwise",
      .summary = "One result per expression, which call the operands a0, a1, …",
      .kind = OpKind::elementwise,
      .operands = {{.name = "a", .variadic = true}},
      .results = {{.name = "y", .variadic = true}},
      .attributes = {{"expressions", std::vector<std::string>{"max(a0 + a1, 0)"}, std::nullopt,
                      "what each result is, in the syntax of include/pdc/IR/Expression.h"}},
      .examples = {example("%x: f32[2, 3], %b: f32[3]",
                           "%y = elementwise %x, %b {expressions = [\"tanh(a0 + a1)\"]} : f32[2, 3]"),
                   example("%x: f32[4]", "%y = elementwise %x {expressions = [\"exp(-a0)\"]} : f32[4]"),
                   example("%x: f32[2, 2], %z: f32[2, 2], %s: f32[]",
                           "%y = elementwise %x, %z, %s {expressions = [\"a0 * a1 + a2\"]} : f32[2, 2]"),
                   example("%x: f32[2, 1], %z: f32[1, 2]",
                           "%y = elementwise %x, %z {expressions = [\"a0 / (1 + a1 * a1)\"]} : f32[2, 2]"),
                   example("%x: f32[3], %z: f32[3]",
                           "%y, %w = elementwise %x, %z {expressions = [\"a0 * a1\", \"a0 - a1\"]} : "
                           "f32[3], f32[3]")},
  }};
}

} // namespace pdc::ops::Elementwise
