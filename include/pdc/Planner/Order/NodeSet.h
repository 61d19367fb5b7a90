// Sets of a graph's nodes.
#pragma once

#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pdc {

/// A set of nodes 0 … capacity-1. Sets that meet in an operation have the same capacity.
class NodeSet {
public:
  NodeSet() = default;
  explicit NodeSet(std::size_t capacity) : words_((capacity + 63) / 64, 0) {}

  bool contains(std::size_t node) const { return words_[node / 64] >> (node % 64) & 1; }
  void insert(std::size_t node) { words_[node / 64] |= std::uint64_t{1} << (node % 64); }
  void erase(std::size_t node) { words_[node / 64] &= ~(std::uint64_t{1} << (node % 64)); }

  NodeSet& operator|=(const NodeSet& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
    return *this;
  }
  NodeSet& operator&=(const NodeSet& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] &= other.words_[i];
    return *this;
  }
  NodeSet& operator-=(const NodeSet& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] &= ~other.words_[i];
    return *this;
  }
  friend NodeSet operator|(NodeSet a, const NodeSet& b) { return a |= b; }
  friend NodeSet operator&(NodeSet a, const NodeSet& b) { return a &= b; }
  friend NodeSet operator-(NodeSet a, const NodeSet& b) { return a -= b; }

  bool includes(const NodeSet& other) const {
    for (std::size_t i = 0; i < words_.size(); ++i)
      if (other.words_[i] & ~words_[i]) return false;
    return true;
  }
  bool intersects(const NodeSet& other) const {
    for (std::size_t i = 0; i < words_.size(); ++i)
      if (other.words_[i] & words_[i]) return true;
    return false;
  }
  std::size_t size() const {
    std::size_t count = 0;
    for (std::uint64_t word : words_) count += static_cast<std::size_t>(std::popcount(word));
    return count;
  }
  bool empty() const {
    for (std::uint64_t word : words_)
      if (word) return false;
    return true;
  }

  /// Calls `visit(node)` for each, ascending.
  template <class Visit>
  void forEach(Visit&& visit) const {
    for (std::size_t i = 0; i < words_.size(); ++i)
      for (std::uint64_t word = words_[i]; word; word &= word - 1)
        visit(i * 64 + static_cast<std::size_t>(std::countr_zero(word)));
  }

  const std::vector<std::uint64_t>& words() const { return words_; }

  friend bool operator==(const NodeSet&, const NodeSet&) = default;
  friend auto operator<=>(const NodeSet&, const NodeSet&) = default; ///< any total order

private:
  std::vector<std::uint64_t> words_;
};

struct NodeSetHash {
  std::size_t operator()(const NodeSet& set) const {
    std::uint64_t hash = 0x9e3779b97f4a7c15;
    for (std::uint64_t word : set.words()) {
      hash = (hash ^ word) * 0xff51afd7ed558ccd;
      hash ^= hash >> 32;
    }
    return static_cast<std::size_t>(hash);
  }
};

} // namespace pdc
