// C++ functions for elementwise operations: one loop over the elements, the expression in its body.
//
//   // y = max(a0 + a1, 0)
//   void add_relu_3(pdcrt::Stream&, View<const float> a0, View<const float> a1, View<float> y) {
//     for (std::int64_t i = 0; i < 401408; ++i)
//       y[i] = pdcrt::maximum(a0[i] + a1[i], 0.0f);
//   }
//
// Operands of the result's shape, and scalars, give one flat loop. Others are broadcast by a loop nest, with the axes
// merged along which every operand goes on alike.
//
// In a program whose ranks have several threads, these share the outermost loop where it has enough elements
// (pdcrt/SharedLoop.h).
//
// For CUDA the same loop is a kernel, whose threads take four neighbours at a time where the innermost axis allows it,
// and a function of the same name and parameters that puts it into the stream.
#pragma once

#include "pdc/IR/OpDef.h"
#include "pdc/IR/Target.h"

#include <string>

namespace pdc {

/// The C++ type of elements in a generated program: "float", "std::int64_t"; booleans are std::uint8_t.
const char* cppTypeOf(ElementType element);

/// A function without its name, so that operations which compute the same share one: "$name$" stands for it, wherever
/// it occurs.
struct FusedKernel {
  std::string text; ///< the comment with the expression, and the definition
  std::string hint; ///< for the name
};

/// The function for an operation of kind elementwise, in a program of `threads` threads per rank. Its parameters are
/// the stream, the operands in order, the results. Errors: arithmetic on integers alone beyond copies, which the CPU
/// target lacks.
Expected<FusedKernel> emitFusedKernel(const Operation& operation, Target target, int threads, Diagnostics& diags);

/// The function that copies a value of type `type`.
FusedKernel emitCopyKernel(const Type& type, Target target, int threads);

} // namespace pdc
