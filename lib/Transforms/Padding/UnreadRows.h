// Which rows of a value have no readers where a mask is 0.
//
// A value has a row for each position of each sample, along two of its axes. A row is not read if all that computes
// with it makes rows of the same position which are not read either, is multiplied by 0 there, or is attention that
// gives its key no weight. What takes rows of some positions only, such as the first one of each text, reads these. All
// that computes with a row must stay finite: NaN times 0 is NaN.
#pragma once

#include "Padding/MaskValues.h"

#include <map>
#include <set>
#include <tuple>

namespace pdc {

class UnreadRows {
public:
  /// `mask` is [samples, positions].
  UnreadRows(const Graph& graph, const Value& mask, PassContext& context)
      : graph_(graph), values_(mask, context), samples_(mask.type().shape[0]), positions_(mask.type().shape[1]) {}

  struct Axes {
    int sample = 0, position = 1;
    friend auto operator<=>(const Axes&, const Axes&) = default;
  };
  /// Whether no forward operation reads the rows where the mask is 0, but for those of read().
  bool of(const Value& value, Axes axes);
  /// Positions that are read whatever the mask says.
  const std::set<std::int64_t>& read() const { return read_; }

private:
  bool isUnreadBy(const Operation& user, std::size_t operand, Axes axes);
  bool hidesKeys(const Operation& user, std::size_t operand, Axes axes);
  bool isZeroed(const Operation& user, std::size_t operand, std::size_t result, Axes axes);
  bool takesFew(const Operation& user, std::size_t operand, Axes axes);

  const Graph& graph_;
  MaskValues values_;
  std::int64_t samples_, positions_;
  std::map<std::pair<const Value*, Axes>, bool> known_;
  std::set<std::int64_t> read_;
};

} // namespace pdc
