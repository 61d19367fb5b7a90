// Which replica of a stage computes a minibatch.
//
// A stage's route is a cyclic word over its replicas: minibatch b belongs to letter b mod L of a word of length L.
// Round robin is the word 0 1 … R-1, and needs no tables. A replica counts its own minibatches: they are its local
// minibatches 0, 1, 2, … Every number that follows from a route is asked here.
//
// Standard library only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pdcrt {

/// The word of a stage, if it is not round robin. Replicas may have several letters, and must have one.
class Route {
public:
  /// Round robin over however many replicas there are.
  Route() = default;
  /// Replicas, from 0.
  explicit Route(std::vector<int> word);

  bool isRoundRobin() const { return word_.empty(); }
  const std::vector<int>& word() const { return word_; }
  friend bool operator==(const Route& a, const Route& b) { return a.word_ == b.word_; }

private:
  friend class Routing;
  std::vector<int> word_;
  std::vector<std::int64_t> before_;               ///< by letter: letters of the same replica before it
  std::vector<std::int64_t> gap_;                  ///< by letter: minibatches to the next one of the same replica
  std::vector<std::vector<std::int64_t>> letters_; ///< by replica: where its letters are
};

/// A route with its number of replicas. Refers to the route, which must outlive it.
///
/// For minibatches b ≥ 0, local minibatches k ≥ 0 and replicas r: b = minibatch(local(b), replica(b)), and the local
/// minibatches of r are those b, in their order, with replica(b) = r. All take constant time, except localCount of a
/// word, which takes the logarithm of the replica's letters.
class Routing {
public:
  Routing() = default; ///< of one replica
  Routing(int replicas, const Route& route) : replicas_(replicas), route_(route.isRoundRobin() ? nullptr : &route) {}

  int replicas() const { return replicas_; }
  /// L: after so many minibatches the same replicas follow again.
  std::int64_t length() const { return route_ ? static_cast<std::int64_t>(route_->word_.size()) : replicas_; }

  /// Who computes minibatch b.
  int replica(std::int64_t b) const {
    if (replicas_ == 1) return 0;
    return route_ ? route_->word_[letter(b)] : static_cast<int>(b % replicas_);
  }
  /// Which of its replica's minibatches b is.
  std::int64_t local(std::int64_t b) const {
    if (replicas_ == 1) return b;
    return route_ ? localOf(b) : b / replicas_;
  }
  /// Local minibatch k of replica r.
  std::int64_t minibatch(std::int64_t k, int r) const { return route_ ? minibatchOf(k, r) : k * replicas_ + r; }
  /// The minibatch after b of the same replica.
  std::int64_t next(std::int64_t b) const { return route_ ? b + route_->gap_[letter(b)] : b + replicas_; }
  /// Minibatches of replica r among the first n of the pipeline.
  std::int64_t localCount(std::int64_t n, int r) const {
    if (route_) return localCountOf(n, r);
    return n > r ? (n - r - 1) / replicas_ + 1 : 0;
  }
  /// Whether replica r has one of the minibatches [first, last).
  bool hasOneOf(std::int64_t first, std::int64_t last, int r) const {
    return localCount(last, r) > localCount(first, r);
  }

private:
  std::size_t letter(std::int64_t b) const { return static_cast<std::size_t>(b) % route_->word_.size(); }
  std::int64_t localOf(std::int64_t b) const;
  std::int64_t minibatchOf(std::int64_t k, int r) const;
  std::int64_t localCountOf(std::int64_t n, int r) const;

  int replicas_ = 1;
  const Route* route_ = nullptr; ///< null: round robin
};

} // namespace pdcrt
