// How ops list the indices that may be divided (OpSplit::loops), and how a member computes with other attributes.
#pragma once

#include "Shared/Define.h"

#include "pdc/IR/Builder.h"
#include "pdc/IR/Loops.h"

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace pdc::ops {

/// Where an index runs: on this axis of operand or result `i`. Negative axes count from the end.
struct Place {
  std::size_t i = 0;
  int axis = 0;
  std::int64_t blocks = 1;
};

/// An index with all of its places. Operands and results that are absent may be named, and so may operands that
/// broadcast: an axis with one element has no index.
struct Index {
  std::int64_t size = 0;
  std::vector<Place> operands, results;
  std::vector<std::size_t> reduced = {}; ///< results that are reduced over the index
  Combine combine = Combine::sum;
  bool mayPad = false;     ///< Loops::pads
  bool inOneBlock = false; ///< Loops::inOneBlock
};

/// Adds an index. An index with fewer than two elements is not added.
void addIndex(Loops& loops, const Operation& op, const Index& index);

constexpr int atRank = std::numeric_limits<int>::max(); ///< the end of all axes

/// Axes that stand at the same place in several operands and results: one index for each axis from `begin` to `end`
/// - 1. A negative end counts from the rank of the first operand in the list.
struct Axes {
  int begin = 0, end = atRank;
  std::vector<std::size_t> operands, results;
  std::vector<std::size_t> reduced = {}; ///< results that are summed over these axes
};

/// Adds an index for each axis. Sizes are those of the first operand in the list, or of the first result if the list is
/// empty.
void addAxes(Loops& loops, const Operation& op, const Axes& axes);

/// For OpSplit::loops: these axes and no others.
std::function<Loops(const Operation&)> alongAxes(Axes axes);

/// For OpSplit::loops of ops of one operand and one result: all axes but the one that the attribute `axis` names.
Loops loopsBesideAxis(const Operation& op);

/// For OpSplit::divide: the same op with the results that `op` has. Attributes that are shapes of results become those
/// of the parts, then `changed` are set. Empty, with an error reported, where the op refuses them.
std::vector<Value*> sameWith(const Operation& op, const Loops& loops, const Division& division,
                             const std::vector<Value*>& operands,
                             const std::vector<std::pair<std::string, Attribute>>& changed, Builder& b);

/// The attribute is the shape of result `result`, and becomes that of a part where the op is divided.
inline AttributeDef shapeOf(int result, AttributeDef attribute) {
  attribute.shapeOfResult = result;
  return attribute;
}

} // namespace pdc::ops
