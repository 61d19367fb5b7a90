// What an optimizer keeps of each trained parameter, and where: for the compiler, which plans the memory, and for the
// runtime, which updates it, writes it to checkpoints and reads it again.
// Standard library only.
#pragma once

#include "pdcrt/Stage.h"
#include "pdcrt/Training.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pdcrt {

/// Names of the pieces that the optimizer keeps of every parameter: "velocity"; "first_moment" and "second_moment";
/// none for sgd.
std::vector<std::string> optimizerPieces(const Training& training);

/// A parameter with n pieces has its i-th one at offsetOf(i, row) of the stage's optimizer block, with the shape and
/// the order of elements of the parameter. Where the block is of a shard (Shards.h), elements have the places that the
/// shard gives them: offsetOf(i, at). All pieces start at 0.
class OptimizerLayout {
public:
  /// `weightsBytes`: of the stage's weights block, BlockBytes::weights, or of the largest shard.
  OptimizerLayout(const Training& training, std::size_t weightsBytes);

  /// Bytes of the optimizer block.
  std::size_t bytes() const { return pieces_.size() * stride_; }
  /// Names of the pieces of `row`. Checkpoints call them PIECE/PARAMETER, and have the number of updates of a parameter
  /// as updates/PARAMETER.
  const std::vector<std::string>& pieces(const ParameterRow& /*row*/) const { return pieces_; }
  std::size_t offsetOf(std::size_t piece, const ParameterRow& row) const { return piece * stride_ + row.offset; }
  /// `at`: elements that precede in the shard.
  std::size_t offsetOf(std::size_t piece, std::int64_t at) const {
    return piece * stride_ + static_cast<std::size_t>(at) * sizeof(float);
  }

private:
  std::vector<std::string> pieces_;
  std::size_t stride_; ///< between the pieces of a parameter
};

/// How a parameter is updated.
struct ParameterUpdate {
  enum class Scope : std::uint8_t {
    elementwise, ///< every element by itself: in parts, and in a backward as soon as its gradient is there
    wholeMatrix  ///< from all elements of the gradient together
  };
  Scope scope = Scope::elementwise;
  std::size_t workspaceBytes = 0; ///< beside weights, gradient and pieces, while it is made

  /// Whether some elements may be updated before the gradients of others are known.
  bool mayBeEarly() const { return scope == Scope::elementwise; }
};

/// How `training` updates a parameter. All optimizers so far are elementwise.
ParameterUpdate updateOf(const Training& training, const ParameterRow& row);

} // namespace pdcrt
