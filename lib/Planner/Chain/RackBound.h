// A lower bound of the time of every plan of a long chain that knows what the link of an outermost component (a rack,
// say) bears from all stages inside it.
//
// FewestLeaves charges a link only with stages that fill its component. Here, at a fixed time T, a label of place j is
// what a plan as fast as T may have made of the places before j: `rack` racks are full or left, and of the next one
// `used` leaves are taken (0: it is fresh) and so many bytes per minibatch are on its link, each way. From a label,
//
//   whole stages   fill the rack up to place k: they take max(work / T, memory in flight / M) leaves at least, as in
//                  chainMemoryBound, and what crosses the rack's first border enters
//   the rack ends  at place k if what is on its link and what leaves it at k is no more than T times the bandwidth
//   one stage      [i, k) goes across into a later rack: its all-reduce is on the links of both racks, and between
//                  whole stages on both sides a mean of what crosses i and what crosses k, by its replicas' shares; it
//                  takes the leaves that computation, memory and the all-reduce over racks ask for
//
// What crosses a place is all tensors across it if what is in the rack is as long as the longest tensor (`later`),
// because then each of them ends in it, or begins in it; else only those to the next place (`now`). Stages with many
// more leaves than their work go across from the first leaf that any label leaves.
//
// Proof that T has no plan if no label reaches the last place: let a plan be as fast as T. Behind each of its stages
// that ends a rack, or goes across, or is whole in a rack, some label is no worse than what the plan has taken: in
// racks, in leaves of the last one, and in bytes on its link. That holds before the first stage. If it holds before a
// stage, the label's racks can be moved up by whole racks and its leaves inside the rack to where the plan is, so the
// label may do what the plan does next, with no more leaves and no more bytes. Where a stage goes across with more
// replicas than it needs, labels stand for all of its ends: the first one with the bytes of the most replicas that end
// in the same rack, the first leaf of the next rack with the bytes of all devices, and the first border whose link
// bears it (its load falls with more replicas). Bytes are rounded down, and labels may be replaced by one that is no
// worse; neither loses a plan.
#pragma once

#include "Chain/ChainBound.h"

namespace pdc {

class RackBound : FewestLeaves {
public:
  RackBound(const ChainSums& sums, const PlannerOptions& options, const Machine& machine);

  /// Whether no plan is as fast as `timeMs`. False, too, where it takes more than `steps` to say.
  bool rulesOut(double timeMs, std::int64_t steps);

private:
  struct Label {
    int rack = 0, used = 0;
    double now = 0, later = 0;
    double filledNow = 0, filledLater = 0; ///< the same once a whole stage is behind one that came across
    int start = 0;
    bool isWhole = true; ///< not in the middle of what fillRack put together
  };

  void findRest();
  void extend(int i);
  void fillRack(const Label& label, int i);
  void goAcross(const std::vector<Label>& labels, int i);
  void goAcross(const Label& label, const Stage& stage, double least);
  void goAcrossAnyhow(double begin, const Stage& stage, double least);
  void endAcross(double begin, const Stage& stage, int last, int used, double entering);
  void offer(int j, Label label);
  bool isBetter(const Label& a, const Label& b, int j) const;
  bool isReplaced(int j, const Label& label) const;
  bool mayEnd(const Label& label, int j) const;
  /// At least what crosses the border of a rack inside the stage, between whole stages on both sides of it.
  double meanBytes(const Stage& stage, bool isLong) const;
  double bytesOn(const Label& label, int j) const;
  double ringBytes(const Stage& stage, double replicas) const {
    return 2 * (replicas - 1) / replicas / replicas * stage.parameters;
  }
  bool isWithin(double leaves, int j) const { return leaves + rest_[j] <= devices_ * (1 + 1e-9); }

  int racks_ = 0, inside_ = 0; ///< of the outermost level, leaves in each
  double linkBytes_ = 0;       ///< of a rack in the time, with what is forgiven
  std::int64_t steps_ = 0;
  std::vector<double> rest_; ///< leaves that the places from j on take at least
  std::vector<std::vector<Label>> labels_;
};

/// Raises `lowMs`, a lower bound, so that it proves a plan of `highMs` to within 1 %, or as far as a few passes prove.
/// Returns it as it is where the links of the outermost components are no slower than those inside, for there
/// stages can go across them, and where chainBound knows nothing.
double rackBound(const ChainSums& sums, const PlannerOptions& options, const Machine& machine, double lowMs,
                 double highMs);

} // namespace pdc
