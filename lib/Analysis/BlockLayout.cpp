#include "BlockLayout.h"

#include <algorithm>
#include <limits>
#include <random>

using namespace pdc;

std::int64_t pdc::aligned(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

namespace {

/// A block whose buffers share bytes by lifetime.
class SharedBlock {
public:
  explicit SharedBlock(std::int64_t size = std::numeric_limits<std::int64_t>::max()) : size_(size) {}

  /// The lowest offset at which `buffer` fits; -1: nowhere.
  std::int64_t offsetFor(const Buffer& buffer) const {
    const std::int64_t bytes = aligned(buffer.bytes);
    std::int64_t offset = 0;
    for (const Piece& other : pieces_) {
      if (other.first > buffer.last || buffer.first > other.last) continue;
      if (other.offset >= offset + bytes) break; // fits before it, and before all that follow
      offset = std::max(offset, other.offset + other.bytes);
    }
    return offset <= size_ - bytes ? offset : -1;
  }

  void add(const Buffer& buffer) {
    const Piece piece{buffer.place.offset, aligned(buffer.bytes), buffer.first, buffer.last};
    pieces_.insert(std::upper_bound(pieces_.begin(), pieces_.end(), piece,
                                    [](const Piece& a, const Piece& b) { return a.offset < b.offset; }),
                   piece);
    end_ = std::max(end_, piece.offset + piece.bytes);
  }

  std::int64_t end() const { return end_; }

private:
  struct Piece {
    std::int64_t offset, bytes;
    int first, last;
  };
  std::vector<Piece> pieces_; ///< by offset
  std::int64_t size_, end_ = 0;
};

/// Places `buffers` in this order.
class Placing {
public:
  Placing(const std::vector<const Buffer*>& kept, std::int64_t slotBytes) : slot_(slotBytes) {
    std::vector<const Buffer*> byOffset = kept;
    std::stable_sort(byOffset.begin(), byOffset.end(),
                     [](const Buffer* a, const Buffer* b) { return a->place.offset < b->place.offset; });
    for (const Buffer* buffer : byOffset) slot_.add(*buffer);
  }

  void place(const std::vector<Buffer*>& buffers) {
    for (Buffer* buffer : buffers) {
      if (const std::int64_t offset = slot_.offsetFor(*buffer); offset >= 0) {
        buffer->place = {Block::slot, -1, offset};
        slot_.add(*buffer);
        continue;
      }
      SharedBlock& block = buffer->place.block == Block::handover ? handover_ : scratch_;
      buffer->place.offset = block.offsetFor(*buffer);
      block.add(*buffer);
    }
  }

  TemporaryBytes bytes() const { return {scratch_.end(), handover_.end()}; }

private:
  SharedBlock slot_, scratch_, handover_;
};

/// The orders in which buffers are placed: by size, by size times lifetime, and by sizes that are wrong by up to a
/// factor of two, the same ones in every run.
class Orders {
public:
  /// Fewer for many buffers: each costs their number squared.
  explicit Orders(std::size_t buffers)
      : count(2 + static_cast<int>(std::min<std::size_t>(30, 4'000'000 / (buffers * buffers + 1)))) {}

  void sort(std::vector<Buffer*>& buffers, int order) {
    std::vector<std::pair<double, Buffer*>> weighed;
    for (Buffer* buffer : buffers) {
      double weight = static_cast<double>(buffer->bytes);
      if (order == 1) weight *= buffer->last - buffer->first + 1;
      if (order > 1) weight *= 0.5 + 1.5 * static_cast<double>(random_() >> 11) / static_cast<double>(1LL << 53);
      weighed.emplace_back(weight, buffer);
    }
    std::stable_sort(weighed.begin(), weighed.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    for (std::size_t i = 0; i < buffers.size(); ++i) buffers[i] = weighed[i].second;
  }

  const int count;

private:
  std::mt19937_64 random_{1};
};

} // namespace

TemporaryBytes pdc::placeByLifetime(const std::vector<Buffer*>& values, const std::vector<Buffer*>& others,
                                    const std::vector<const Buffer*>& kept, std::int64_t slotBytes) {
  std::vector<Place> wanted, best;
  std::vector<Buffer*> all = values;
  all.insert(all.end(), others.begin(), others.end());
  for (const Buffer* buffer : all) wanted.push_back(buffer->place);
  TemporaryBytes least, leastOfValues;
  Orders orders(all.size());
  const auto keep = [&](const Placing& placing) {
    least = placing.bytes();
    best.clear();
    for (const Buffer* buffer : all) best.push_back(buffer->place);
  };
  // The order that is best for values, whatever the others take.
  std::vector<Buffer*> first = values, then = others, together = all;
  for (int order = 0; order < orders.count; ++order) {
    for (std::size_t i = 0; i < all.size(); ++i) all[i]->place = wanted[i];
    Placing placing(kept, slotBytes);
    orders.sort(first, order);
    placing.place(first);
    const TemporaryBytes ofValues = placing.bytes();
    if (!best.empty() && ofValues.sum() >= leastOfValues.sum()) continue;
    leastOfValues = ofValues;
    orders.sort(then, 0);
    placing.place(then);
    keep(placing);
  }
  // All together, if that is worth it: then the places of values depend on the others.
  const std::int64_t worthwhile = (slotBytes + least.sum()) / 64;
  for (int order = 0; order < orders.count && least.sum() > 0; ++order) {
    for (std::size_t i = 0; i < all.size(); ++i) all[i]->place = wanted[i];
    Placing placing(kept, slotBytes);
    orders.sort(together, order);
    placing.place(together);
    if (placing.bytes().sum() + worthwhile < least.sum()) keep(placing);
  }
  for (std::size_t i = 0; i < all.size(); ++i) all[i]->place = best[i];
  return least;
}
