// What members of a team do together; parts of values.
#include "pdcrt/kernels/OwnPart.h"
#include "pdcrt/kernels/TeamExchange.h"
#include "pdcrt/kernels/TeamGather.h"
#include "pdcrt/kernels/TeamReduce.h"
#include "pdcrt/kernels/TeamScatter.h"

#include "Shapes.h"
#include "TeamSums.h"
#include "pdcrt/Device.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace pdcrt {
namespace {

const std::byte* bytes(const void* memory) {
  return static_cast<const std::byte*>(memory);
}
std::byte* bytes(void* memory) {
  return static_cast<std::byte*>(memory);
}

std::size_t bytesOfPart(const TeamParts& parts, Element element) {
  return static_cast<std::size_t>(parts.part().elements()) * bytesOf(element);
}

/// Elements of the parts of all members.
std::int64_t partsIn(const TeamParts& parts, int members) {
  return parts.part().elements() * members;
}

[[noreturn]] void refuse(const Shape& shape, const TeamDivision& division, int members, const char* what) {
  throw std::runtime_error(std::string(what) + " " + toString(shape) + " cannot be divided along axis " +
                           std::to_string(division.axis) + " in " + std::to_string(division.blocks) + " blocks of " +
                           std::to_string(members) + " parts" +
                           (division.padded > 0 ? " of " + std::to_string(division.padded) + " elements" : ""));
}

Collective reduction(const TeamReduce::Options& o) {
  using Combine = TeamReduce::Combine;
  return {.kind = Collective::Kind::allReduce,
          .combine = o.combine == Combine::max   ? Collective::Combine::max
                     : o.combine == Combine::min ? Collective::Combine::min
                                                 : Collective::Combine::sum,
          .element = o.element,
          .elements = o.operand.elements()};
}

} // namespace

// ---- Parts ----

TeamParts::TeamParts(const Shape& part, const TeamDivision& division, int members)
    : part_(part), whole_(part), members_(members) {
  if (division.axis < 0 || division.axis >= part.rank || division.blocks < 1 || members < 1)
    refuse(part, division, members, "the part");
  const std::int64_t size = part.dims[division.axis], all = size * members, padding = all - division.padded;
  const bool isPadded = division.padded > 0;
  // Whoever has padding is the last one, and has something beside it.
  if (size % division.blocks != 0 || (isPadded && (division.blocks != 1 || padding < 0 || padding >= size)))
    refuse(part, division, members, "the part");
  whole_.dims[division.axis] = isPadded ? division.padded : all;
  rows_ = division.blocks;
  std::int64_t inner = 1;
  for (int axis = 0; axis < part.rank; ++axis)
    if (axis != division.axis) (axis < division.axis ? rows_ : inner) *= part.dims[axis];
  share_ = size / division.blocks * inner;
  last_ = isPadded ? share_ - padding * inner : share_;
  const std::int64_t row = whole_.elements() / std::max<std::int64_t>(1, rows_);
  for (int i = 0; i < 2; ++i) {
    Arrangement inWhole, inPart;
    inWhole.strides[0] = row, inPart.strides[0] = share_;
    inWhole.strides[1] = inPart.strides[1] = 1;
    copies_[i] = StridedCopy({rows_, i == 0 ? share_ : last_}, inWhole, inPart);
  }
}

TeamParts TeamParts::ofWhole(const Shape& whole, const TeamDivision& division, int members) {
  if (division.axis < 0 || division.axis >= whole.rank || members < 1) refuse(whole, division, members, "the value");
  Shape part = whole;
  std::int64_t& size = part.dims[division.axis];
  const bool isPadded = division.padded > 0;
  if (isPadded ? division.padded != size : division.blocks < 1 || size % (division.blocks * members) != 0)
    refuse(whole, division, members, "the value");
  size = (size + members - 1) / members;
  return {part, division, members};
}

void TeamParts::take(Stream& q, const std::byte* whole, int member, std::byte* part, std::size_t elementBytes) const {
  if (shareOf(member) != share_) fill(q, part, part_.elements(), 0, elementBytes);
  copies_[shareOf(member) != share_].run(q, whole + static_cast<std::size_t>(member * share_) * elementBytes, part,
                                         elementBytes);
}

void TeamParts::place(Stream& q, const std::byte* part, int member, std::byte* whole, std::size_t elementBytes) const {
  copies_[shareOf(member) != share_].reversed().run(
      q, part, whole + static_cast<std::size_t>(member * share_) * elementBytes, elementBytes);
}

// ---- Sums ----

TeamReduce::TeamReduce(Setup& setup, const Options& o)
    : options_(o), elements_(o.operand.elements()), addedSize_(elements_), addedLanes_(o.lanes),
      collective_(setup.collective(reduction(o))) {
  if (o.addedAxis >= o.operand.rank)
    throw std::runtime_error("a sum over a team adds along axis " + std::to_string(o.addedAxis) + " of " +
                             toString(o.operand));
  if (o.addedAxis >= 0) {
    addedSize_ = o.operand.dims[o.addedAxis];
    for (int axis = o.addedAxis + 1; axis < o.operand.rank; ++axis) addedInner_ *= o.operand.dims[axis];
  }
  if (addedInner_ == 1 && o.lanes == 1) addedLanes_ = std::max<std::int64_t>(1, addedSize_); // all are neighbours
  if (addedLanes_ < 1 || addedSize_ % addedLanes_ != 0)
    throw std::runtime_error("a sum over a team adds " + std::to_string(addedSize_) + " elements in lanes of " +
                             std::to_string(addedLanes_));
}

std::int64_t TeamReduce::arriving(const Options& o) {
  return reduction(o).arrivedElements(o.members);
}

void TeamReduce::beginWith(Stream& q, const void* x, void* arrived) const {
  q.team()->follow(collective_, q, bytes(x), bytes(arrived));
}

void TeamReduce::begin(Stream& q, const void* x, void* arrived) const {
  q.team()->start(collective_, q, bytes(x), bytes(arrived));
}

void TeamReduce::end(Stream& q, const void* arrived, const void* added, void* y) const {
  q.team()->finish(collective_, q);
  finishTeamSum(q, options_.element, arrived, options_.combine == Combine::mean ? options_.members : 1, added,
                {.size = addedSize_, .inner = addedInner_, .lanes = addedLanes_}, y, elements_);
}

TeamScatter::TeamScatter(Setup& setup, const Options& o)
    : options_(o), parts_(TeamParts::ofWhole(o.operand, o.to, o.members)),
      collective_(setup.collective({.kind = Collective::Kind::reduceScatter,
                                    .combine = Collective::Combine::sum,
                                    .element = o.element,
                                    .elements = parts_.part().elements()})) {}

std::int64_t TeamScatter::arriving(const Options& o) {
  const TeamParts parts = TeamParts::ofWhole(o.operand, o.to, o.members);
  return partsIn(parts, o.members) * (parts.inOrder() ? 1 : 2);
}

void TeamScatter::begin(Stream& q, const void* x, void* arrived) const {
  const std::byte* data = bytes(x);
  if (!parts_.inOrder()) {
    const std::size_t part = bytesOfPart(parts_, options_.element);
    std::byte* const inOrder = bytes(arrived) + part * static_cast<std::size_t>(options_.members);
    for (int member = 0; member < options_.members; ++member)
      parts_.take(q, bytes(x), member, inOrder + part * static_cast<std::size_t>(member), bytesOf(options_.element));
    data = inOrder;
  }
  q.team()->start(collective_, q, data, bytes(arrived));
}

void TeamScatter::end(Stream& q, const void* arrived, void* y) const {
  q.team()->finish(collective_, q);
  const std::size_t part = bytesOfPart(parts_, options_.element);
  device::copy(q, y, bytes(arrived) + part * static_cast<std::size_t>(q.member()), part);
}

// ---- Moves ----

TeamGather::TeamGather(Setup& setup, const Options& o)
    : options_(o), parts_(o.operand, o.from, o.members),
      collective_(setup.collective({.kind = Collective::Kind::allGather,
                                    .combine = Collective::Combine::sum,
                                    .element = o.element,
                                    .elements = o.operand.elements()})) {}

std::int64_t TeamGather::arriving(const Options& o) {
  return o.operand.elements() * o.members;
}

void TeamGather::begin(Stream& q, const void* x, void* arrived) const {
  q.team()->start(collective_, q, bytes(x), bytes(arrived));
}

void TeamGather::end(Stream& q, const void* x, const void* arrived, void* y) const {
  q.team()->finish(collective_, q);
  const std::size_t part = bytesOfPart(parts_, options_.element);
  for (int member = 0; member < options_.members; ++member)
    parts_.place(q, member == q.member() ? bytes(x) : bytes(arrived) + part * static_cast<std::size_t>(member), member,
                 bytes(y), bytesOf(options_.element));
}

TeamExchange::TeamExchange(Setup& setup, const Options& o)
    : options_(o), cut_(TeamParts::ofWhole(o.operand, o.to, o.members)), joined_(cut_.part(), o.from, o.members),
      collective_(setup.collective({.kind = Collective::Kind::allToAll,
                                    .combine = Collective::Combine::sum,
                                    .element = o.element,
                                    .elements = cut_.part().elements()})) {
  if (o.from.axis == o.to.axis)
    throw std::runtime_error("parts of " + toString(o.operand) + " are exchanged along one axis, " +
                             std::to_string(o.to.axis));
}

std::int64_t TeamExchange::arriving(const Options& o) {
  return 2 * partsIn(TeamParts::ofWhole(o.operand, o.to, o.members), o.members);
}

void TeamExchange::begin(Stream& q, const void* x, void* arrived) const {
  const std::size_t part = bytesOfPart(cut_, options_.element);
  std::byte* const inOrder = bytes(arrived) + part * static_cast<std::size_t>(options_.members);
  for (int member = 0; member < options_.members; ++member)
    cut_.take(q, bytes(x), member, inOrder + part * static_cast<std::size_t>(member), bytesOf(options_.element));
  q.team()->start(collective_, q, inOrder, bytes(arrived));
}

void TeamExchange::end(Stream& q, const void* arrived, void* y) const {
  q.team()->finish(collective_, q);
  const std::size_t part = bytesOfPart(cut_, options_.element);
  for (int member = 0; member < options_.members; ++member) {
    const int from = member == q.member() ? options_.members + member : member; // its own it has in order
    joined_.place(q, bytes(arrived) + part * static_cast<std::size_t>(from), member, bytes(y),
                  bytesOf(options_.element));
  }
}

OwnPart::OwnPart(Setup&, const Options& o) : parts_(TeamParts::ofWhole(o.operand, o.to, o.members)) {}

} // namespace pdcrt
