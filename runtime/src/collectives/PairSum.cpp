#include "PairSum.h"

#include "pdcrt/SumPieces.h"

namespace pdcrt {
namespace {

/// On a GPU the device adds all at once.
std::size_t piecesOf(std::size_t bytes) {
  return device::hostSeesBlocks() ? static_cast<std::size_t>(piecesOfSum(static_cast<std::int64_t>(bytes))) : 1;
}

} // namespace

PairSum::PairSum(const TeamGroup& group, const Collective& collective, int channel, Communicator& communicator)
    : group_(group), collective_(collective),
      bytes_(static_cast<std::size_t>(collective.elements) * bytesOf(collective.element)), channel_(channel),
      communicator_(communicator), pieces_(piecesOf(bytes_)) {
  for (TransferGroup& piece : pieces_) {
    piece.resize(2);
    piece.urgent = true;
  }
  terms_.reserve(2);
}

/// Pieces begin where cache lines do.
std::size_t PairSum::beginOf(std::size_t piece) const {
  constexpr std::size_t line = 64;
  return piece == pieces_.size() ? bytes_ : bytes_ * piece / pieces_.size() / line * line;
}

void PairSum::begin(Stream& q, const std::byte* data, std::byte* arrived) {
  stream_ = &q;
  data_ = data;
  arrived_ = arrived;
  sent_ = 0;
}

void PairSum::take(const std::byte* end) {
  for (; sent_ < pieces_.size() && data_ + beginOf(sent_ + 1) <= end; ++sent_) {
    TransferGroup& piece = pieces_[sent_];
    const std::size_t begin = beginOf(sent_), bytes = beginOf(sent_ + 1) - begin;
    const int other = 1 - group_.self;
    piece.used = 0;
    group_.add(piece, other, /*outgoing=*/false, channel_, arrived_ + begin, bytes);
    group_.add(piece, other, /*outgoing=*/true, channel_, data_ + begin, bytes);
    piece.ready.record(*stream_);
    communicator_.post(piece);
  }
}

void PairSum::sendRest() {
  take(data_ + bytes_);
}

bool PairSum::finish(Stream& q) {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (!communicator_.wait(pieces_[i])) return false;
    pieces_[i].precede(q);
    const std::size_t begin = beginOf(i);
    terms_.clear();
    for (int member = 0; member < 2; ++member) terms_.push_back((member == group_.self ? data_ : arrived_) + begin);
    device::combine(q, collective_.element, collective_.combine, arrived_ + begin, terms_,
                    static_cast<std::int64_t>((beginOf(i + 1) - begin) / bytesOf(collective_.element)));
  }
  data_ = nullptr;
  return true;
}

} // namespace pdcrt
