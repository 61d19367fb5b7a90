#include "BlockLayout.h"

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <unordered_map>

using namespace pdc;

std::int64_t pdc::aligned(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

namespace {

/// A block whose buffers share bytes by lifetime.
class SharedBlock {
public:
  explicit SharedBlock(std::int64_t size = std::numeric_limits<std::int64_t>::max()) : size_(size) {}

  /// The lowest offset at which `buffer` fits, which may be that of one that it replaces, or the other way round; -1:
  /// nowhere.
  std::int64_t offsetFor(const Buffer& buffer) const {
    const std::int64_t bytes = aligned(buffer.bytes);
    std::int64_t offset = 0;
    for (const Piece& other : pieces_) {
      if (!meet(buffer, other)) continue;
      if (other.offset >= offset + bytes) break; // fits before it, and before all that follow
      if (replace(buffer, other) && fits(buffer, other.offset)) return other.offset;
      offset = std::max(offset, other.offset + other.bytes);
    }
    return offset <= size_ - bytes ? offset : -1;
  }

  /// The offset of a buffer that it replaces, where it fits there; -1: there is none.
  std::int64_t replacedOffsetFor(const Buffer& buffer) const {
    if (buffer.replaces)
      if (const auto replaced = offsets_.find(buffer.replaces); replaced != offsets_.end())
        if (fits(buffer, replaced->second)) return replaced->second;
    return -1;
  }

  /// The same, or of one that replaces it.
  std::int64_t sharedOffsetFor(const Buffer& buffer) const {
    if (const std::int64_t replaced = replacedOffsetFor(buffer); replaced >= 0) return replaced;
    if (const auto by = replacements_.find(buffer.value); by != replacements_.end())
      if (fits(buffer, by->second)) return by->second;
    return -1;
  }

  void add(const Buffer& buffer) {
    const Piece piece{buffer.place.offset, aligned(buffer.bytes), buffer.first,
                      buffer.last,         buffer.value,          buffer.replaces};
    pieces_.insert(std::upper_bound(pieces_.begin(), pieces_.end(), piece,
                                    [](const Piece& a, const Piece& b) { return a.offset < b.offset; }),
                   piece);
    end_ = std::max(end_, piece.offset + piece.bytes);
    if (piece.value) offsets_[piece.value] = piece.offset;
    if (piece.replaces) replacements_[piece.replaces] = piece.offset;
  }

  /// Takes away `buffer`, which has a value.
  void remove(const Buffer& buffer) {
    std::erase_if(pieces_, [&](const Piece& piece) { return piece.value == buffer.value; });
    offsets_.erase(buffer.value);
    if (buffer.replaces) replacements_.erase(buffer.replaces);
    end_ = 0;
    for (const Piece& piece : pieces_) end_ = std::max(end_, piece.offset + piece.bytes);
  }

  std::int64_t end() const { return end_; }

private:
  struct Piece {
    std::int64_t offset, bytes;
    int first, last;
    const Value *value, *replaces;
  };

  static bool meet(const Buffer& a, const Piece& b) { return b.first <= a.last && a.first <= b.last; }
  static bool replace(const Buffer& a, const Piece& b) {
    return (a.replaces && a.replaces == b.value) || (b.replaces && b.replaces == a.value);
  }

  /// Whether nothing but what it replaces, or is replaced by, is at `offset` while `buffer` is alive.
  bool fits(const Buffer& buffer, std::int64_t offset) const {
    const std::int64_t bytes = aligned(buffer.bytes);
    for (const Piece& other : pieces_) {
      if (other.offset >= offset + bytes) break;
      if (!meet(buffer, other) || other.offset + other.bytes <= offset) continue;
      if (other.offset != offset || !replace(buffer, other)) return false;
    }
    return true;
  }

  std::vector<Piece> pieces_;                                   ///< by offset
  std::unordered_map<const Value*, std::int64_t> offsets_;      ///< of what has a value
  std::unordered_map<const Value*, std::int64_t> replacements_; ///< of what replaces a value
  std::int64_t size_, end_ = 0;
};

/// Places `buffers` in this order. `shares`: where what they replace is, if they fit there, else where that is lowest.
class Placing {
public:
  Placing(const std::vector<const Buffer*>& kept, std::int64_t slotBytes, bool grows, bool shares)
      : shares_(shares), slotBytes_(slotBytes), slot_(grows ? std::numeric_limits<std::int64_t>::max() : slotBytes) {
    std::vector<const Buffer*> byOffset = kept;
    std::stable_sort(byOffset.begin(), byOffset.end(),
                     [](const Buffer* a, const Buffer* b) { return a->place.offset < b->place.offset; });
    for (const Buffer* buffer : byOffset) slot_.add(*buffer);
  }

  void place(const std::vector<Buffer*>& buffers) {
    for (Buffer* buffer : buffers) {
      SharedBlock& block = buffer->place.block == Block::handover ? handover_ : scratch_;
      std::int64_t inSlot = shares_ ? slot_.sharedOffsetFor(*buffer) : -1;
      std::int64_t apart = shares_ && inSlot < 0 ? block.sharedOffsetFor(*buffer) : -1;
      if (inSlot < 0 && apart < 0) inSlot = slot_.offsetFor(*buffer);
      if (inSlot < 0 && apart < 0) apart = block.offsetFor(*buffer);
      if (inSlot >= 0) buffer->place.block = Block::slot;
      buffer->place.offset = std::max(inSlot, apart);
      (inSlot >= 0 ? slot_ : block).add(*buffer);
    }
  }

  /// Buffers that have their places.
  void add(const std::vector<Buffer*>& buffers) {
    for (const Buffer* buffer : buffers) blockOf(*buffer).add(*buffer);
  }

  /// Moves those of `buffers`, all of which are placed, to what they replace where they can lie there after all: that
  /// is in a cache, and will be written in any case. From the first to the last: what moves may leave behind what
  /// replaces it, which then may follow.
  void moveToWhatTheyReplace(const std::vector<Buffer*>& buffers) {
    std::vector<Buffer*> replacing;
    for (Buffer* buffer : buffers)
      if (buffer->replaces) replacing.push_back(buffer);
    std::stable_sort(replacing.begin(), replacing.end(),
                     [](const Buffer* a, const Buffer* b) { return a->first < b->first; });
    for (bool changed = true; changed;) {
      changed = false;
      for (Buffer* buffer : replacing) {
        const Place before = buffer->place;
        blockOf(*buffer).remove(*buffer);
        for (const auto& [name, block] : {std::pair{Block::slot, &slot_}, {Block::scratch, &scratch_}})
          if (const std::int64_t offset = block->replacedOffsetFor(*buffer); offset >= 0)
            buffer->place = {name, -1, offset};
        blockOf(*buffer).add(*buffer);
        changed = changed || buffer->place != before;
      }
    }
  }

  TemporaryBytes bytes() const {
    return {scratch_.end() + std::max<std::int64_t>(slot_.end() - slotBytes_, 0), handover_.end()};
  }

private:
  SharedBlock& blockOf(const Buffer& buffer) {
    const Block block = buffer.place.block;
    return block == Block::slot ? slot_ : block == Block::handover ? handover_ : scratch_;
  }

  bool shares_;
  std::int64_t slotBytes_;
  SharedBlock slot_, scratch_, handover_;
};

/// The orders in which buffers are placed: by size, by size times lifetime, and by sizes that are wrong by up to a
/// factor of two, the same ones in every run.
class Orders {
public:
  /// Fewer for many buffers: each costs their number squared.
  explicit Orders(std::size_t buffers)
      : count(2 + static_cast<int>(std::min<std::size_t>(30, 4'000'000 / (buffers * buffers + 1)))),
        steps(static_cast<int>(std::min<std::size_t>(1000, 50'000'000 / (buffers * buffers + 1)))) {}

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

  /// Moves one of `chosen` to an earlier place.
  void promote(std::vector<Buffer*>& buffers, const std::vector<Buffer*>& chosen) {
    const auto at = std::find(buffers.begin(), buffers.end(), chosen[random_() % chosen.size()]);
    const auto place = static_cast<std::size_t>(at - buffers.begin());
    if (place > 0) std::rotate(buffers.begin() + static_cast<std::ptrdiff_t>(random_() % place), at, at + 1);
  }

  const int count;
  const int steps; ///< how often to promote

private:
  std::mt19937_64 random_{1};
};

/// The most bytes that are alive at a time.
std::int64_t mostAlive(const std::vector<Buffer*>& buffers, const std::vector<const Buffer*>& kept) {
  std::map<int, std::int64_t> change;
  const auto count = [&](const Buffer& buffer) {
    change[buffer.first] += aligned(buffer.bytes);
    change[buffer.last + 1] -= aligned(buffer.bytes);
    if (!buffer.replaces) return;
    change[buffer.first] -= aligned(buffer.bytes); // the two may be the same bytes
    change[buffer.first + 1] += aligned(buffer.bytes);
  };
  for (const Buffer* buffer : buffers) count(*buffer);
  for (const Buffer* buffer : kept) count(*buffer);
  std::int64_t alive = 0, most = 0;
  for (const auto& [moment, bytes] : change) most = std::max(most, alive += bytes);
  return most;
}

/// Looks for an order of placing with little scratch.
class Search {
public:
  Search(const std::vector<Buffer*>& values, const std::vector<Buffer*>& others, const std::vector<const Buffer*>& kept,
         std::int64_t slotBytes, bool grows)
      : values_(values), others_(others), all_(values), kept_(kept), slotBytes_(slotBytes), grows_(grows),
        orders_(values.size() + others.size()) {
    all_.insert(all_.end(), others.begin(), others.end());
    for (const Buffer* buffer : all_) wanted_.push_back(buffer->place);
  }

  TemporaryBytes run() {
    const Found apart = valuesFirst(), together = allTogether();
    // The places of values should not depend on the others for little.
    const bool worthwhile = together.bytes.sum() + (slotBytes_ + apart.bytes.sum()) / 64 < apart.bytes.sum();
    const Found& best = worthwhile ? together : apart;
    for (std::size_t i = 0; i < all_.size(); ++i) all_[i]->place = best.places[i];
    return best.bytes;
  }

private:
  struct Found {
    TemporaryBytes bytes{std::numeric_limits<std::int64_t>::max() / 2, 0};
    std::vector<Place> places; ///< of all buffers
  };

  Placing start(bool shares) const {
    for (std::size_t i = 0; i < all_.size(); ++i) all_[i]->place = wanted_[i];
    return Placing(kept_, slotBytes_, grows_, shares);
  }

  void keep(const TemporaryBytes& bytes, Found& found) const {
    found.bytes = bytes;
    found.places.clear();
    for (const Buffer* buffer : all_) found.places.push_back(buffer->place);
  }

  /// The order that is best for values, whatever the others take.
  Found valuesFirst() {
    Found found;
    std::int64_t leastOfValues = std::numeric_limits<std::int64_t>::max();
    std::vector<Buffer*> first = values_, then = others_;
    for (int order = 0; order < orders_.count; ++order) {
      Placing placing = start(order % 2 == 1);
      orders_.sort(first, order);
      placing.place(first);
      if (placing.bytes().sum() >= leastOfValues) continue;
      leastOfValues = placing.bytes().sum();
      placing.moveToWhatTheyReplace(values_);
      orders_.sort(then, 0);
      placing.place(then);
      keep(placing.bytes(), found);
    }
    return found;
  }

  Found allTogether() {
    Found found;
    std::vector<Buffer*> order = all_, best, highest;
    const auto attempt = [&](std::int64_t limit, bool shares) {
      Placing placing = start(shares);
      placing.place(order);
      const std::int64_t sum = placing.bytes().sum();
      if (sum >= limit) return;
      if (sum < found.bytes.sum()) keep(placing.bytes(), found);
      best = order;
      highest = endingLast(placing.bytes());
    };
    for (int i = 0; i < orders_.count && found.bytes.sum() > 0; ++i) {
      orders_.sort(order, i);
      attempt(found.bytes.sum(), i % 2 == 1);
    }
    // What reaches the end is placed earlier, one buffer after the other, as long as that does no harm.
    const std::int64_t alive = mostAlive(all_, kept_),
                       enough = std::max<std::int64_t>(alive + alive / 128 - slotBytes_, 0);
    for (int step = 0; step < orders_.steps && found.bytes.sum() > enough; ++step) {
      order = best;
      orders_.promote(order, highest);
      attempt(found.bytes.sum() + 1, step % 2 == 1);
    }
    for (std::size_t i = 0; i < all_.size(); ++i) all_[i]->place = found.places[i];
    Placing placing(kept_, slotBytes_, grows_, false);
    placing.add(all_);
    placing.moveToWhatTheyReplace(all_);
    keep(placing.bytes(), found);
    return found;
  }

  /// What of scratch and handover lies at their ends.
  std::vector<Buffer*> endingLast(const TemporaryBytes& bytes) const {
    std::vector<Buffer*> found;
    for (Buffer* buffer : all_) {
      const std::int64_t end = buffer->place.block == Block::scratch    ? bytes.scratch
                               : buffer->place.block == Block::handover ? bytes.handover
                               : grows_                                 ? slotBytes_ + bytes.scratch
                                                                        : -1;
      if (buffer->place.offset + aligned(buffer->bytes) == end) found.push_back(buffer);
    }
    return found;
  }

  const std::vector<Buffer*>&values_, &others_;
  std::vector<Buffer*> all_;
  const std::vector<const Buffer*>& kept_;
  std::int64_t slotBytes_;
  bool grows_;
  std::vector<Place> wanted_;
  Orders orders_;
};

} // namespace

TemporaryBytes pdc::placeByLifetime(const std::vector<Buffer*>& values, const std::vector<Buffer*>& others,
                                    const std::vector<const Buffer*>& kept, std::int64_t slotBytes, bool grows) {
  if (values.empty() && others.empty()) return {};
  return Search(values, others, kept, slotBytes, grows).run();
}
