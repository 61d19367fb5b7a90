// Recognises masks that choose: sums of terms, each of which is, along some axes, 1 where an index points and 0
// elsewhere, times numbers and conditions. Exporters write the routing of tokens to experts so.
#pragma once

#include "pdc/IR/Builder.h"

#include <map>
#include <optional>
#include <vector>

namespace pdc::ops {

/// An axis, or a factor of one, that a mask runs along. `noLabel`: one element. `choiceLabel`: the axis over which a
/// term is summed.
using Label = int;
inline constexpr Label noLabel = -1, choiceLabel = -2;

/// A number or a condition for each place of a mask: `value`, whose axes run along labels.
struct MaskFactor {
  Value* value = nullptr;
  std::vector<Label> labels; ///< by axis of `value`
  bool negated = false;      ///< of a condition
};

/// 1 where the place along `label` is what `index` says, counted from the end if it is negative and `wraps`.
struct OneHot {
  Label label = noLabel;
  std::int64_t size = 0;
  MaskFactor index;
  bool wraps = false;
};

/// A product, summed over `choices` places of an axis that the mask does not have.
struct MaskTerm {
  std::vector<OneHot> oneHots;
  std::vector<MaskFactor> conditions;
  std::vector<MaskFactor> gates; ///< in the order in which they are multiplied
  std::int64_t choices = 1;
};

/// How terms become the mask.
enum class MaskKind : std::uint8_t {
  sum,
  positive, ///< 1 where the sum is above 0, else 0
  nonzero   ///< 1 where the sum is not 0, else 0
};

struct MaskAxis {
  Label label = noLabel;
  std::int64_t size = 1;
};

struct ChoiceMask {
  std::vector<std::vector<MaskAxis>> axes; ///< by axis of the value: what it is made of, slowest first; none of size 1
  std::vector<MaskTerm> terms;
  MaskKind kind = MaskKind::sum;
};

/// Looks at values from their last operation back to what the mask is made of.
class MaskReader {
public:
  explicit MaskReader(Builder& builder) : b(builder) {}

  /// What `value` is. A value that is no mask is one factor of itself.
  ChoiceMask read(Value* value);

private:
  ChoiceMask itself(Value* value);
  std::optional<ChoiceMask> readOperation(const Operation& op);
  std::optional<ChoiceMask> product(ChoiceMask x, ChoiceMask y, std::vector<std::vector<MaskAxis>> axes);
  std::optional<ChoiceMask> elementwiseProduct(const Operation& op, Value* x, Value* y);
  std::optional<ChoiceMask> sum(const Operation& op);
  std::optional<ChoiceMask> matrixProduct(const Operation& op);
  std::optional<ChoiceMask> choice(const Operation& op);
  std::optional<ChoiceMask> comparison(const Operation& op);
  std::optional<ChoiceMask> oneHot(const Operation& op, Value* index, Value* places, bool wraps);
  std::optional<ChoiceMask> summed(const Operation& op);
  std::optional<ChoiceMask> selected(const Operation& op);
  std::optional<ChoiceMask> cast(const Operation& op);
  std::optional<ChoiceMask> reshaped(const Operation& op);
  std::optional<ChoiceMask> transposed(const Operation& op);
  std::optional<ChoiceMask> broadcast(const Operation& op);
  /// y's axes as those of x, aligned at the last one, and its terms with x's labels. The axes of both.
  std::optional<std::vector<std::vector<MaskAxis>>> unified(ChoiceMask& x, ChoiceMask& y, std::size_t rank);
  /// Divides parts of an axis of both until they have the same sizes.
  bool refine(ChoiceMask& x, std::size_t axisOfX, ChoiceMask& y, std::size_t axisOfY);
  /// Divides a part of an axis in two. Not one along which there is a one-hot.
  bool split(ChoiceMask& mask, Label label, std::int64_t slow, std::int64_t fast);
  ChoiceMask withFreshLabels(ChoiceMask mask);

  Builder& b;
  std::map<const Value*, ChoiceMask> known_;
  Label next_ = 0;
  int left_ = 400; ///< operations that may still be looked at
};

/// The number that all elements of `value` are; nothing where they differ, or that is not known.
std::optional<double> splatOf(Value* value, Builder& b);

} // namespace pdc::ops
