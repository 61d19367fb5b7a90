// The versions of a stage's weights: a ring of blocks in the arena. Pointers move, weights are never copied to stash
// them.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

namespace pdcrt {

class Versions {
public:
  Versions() = default;
  /// `count` blocks, `stride` bytes apart; version 0 is in the first.
  Versions(std::byte* ring, std::size_t stride, int count) : ring_(ring), stride_(stride), count_(count) {}

  std::int64_t newest() const { return newest_; }
  /// Whether a version has been made and not been overwritten.
  bool alive(std::int64_t version) const { return version >= 0 && version <= newest_ && version > newest_ - count_; }
  std::byte* at(std::int64_t version) const {
    assert(alive(version));
    return block(version);
  }
  /// The block that the next version is written to: that of a dead version, or, in a ring of one, the newest itself.
  std::byte* next() const { return block(newest_ + 1); }
  void advance() { ++newest_; }
  /// After a drain: the newest becomes version 0.
  void restart() {
    first_ += newest_;
    newest_ = 0;
  }
  /// The i-th block, whatever it holds.
  std::byte* raw(int i) const { return ring_ + static_cast<std::size_t>(i) * stride_; }
  int count() const { return count_; }

private:
  std::byte* block(std::int64_t version) const { return raw(static_cast<int>((first_ + version) % count_)); }

  std::byte* ring_ = nullptr;
  std::size_t stride_ = 0;
  int count_ = 1;
  std::int64_t first_ = 0; ///< updates before the last drain
  std::int64_t newest_ = 0;
};

} // namespace pdcrt
