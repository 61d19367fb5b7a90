// The team of devices that runs a stage together, as kernels see it. All members run one program on the same minibatch;
// each has parts of some parameters and values.
//
// What they do together are collectives (MPI's and NCCL's names). A kernel says what its collective is while it is
// constructed (Setup::collective), so all members have the same collectives with the same numbers, and starts and
// finishes it in its calls. A value of `members` parts has that of member 0 first.
#pragma once

#include "pdcrt/View.h"

#include <cstddef>
#include <cstdint>
#include <exception>

namespace pdcrt {

class Stream;

/// What becomes of the `data` of all members, with t members and parts of partElements():
///
///   allReduce      data: `elements`; then `arrived` begins with the sum (or largest, or smallest) of all members' data
///   reduceScatter  data: t parts; then part m of `arrived` is, on member m, the sum of all members' parts m
///   allGather      data: one part; then part m of `arrived` is that of member m, for all m but the member's own
///   allToAll       data: t parts; then part m of `arrived` is the one that member m has for this member, for all m but
///                  its own
///
/// Sums add the members' terms in member order, each in one place, so all members get the same bits. Elements of 16
/// bits are added as float and rounded once. (Transport `nccl` leaves order and rounding to NCCL.) Other parts of
/// `arrived` may have been overwritten.
struct Collective {
  enum class Kind : std::uint8_t { allReduce, reduceScatter, allGather, allToAll };
  enum class Combine : std::uint8_t { sum, max, min };

  Kind kind = Kind::allReduce;
  Combine combine = Combine::sum; ///< of an allReduce or reduceScatter
  Element element = Element::f32;
  std::int64_t elements = 0; ///< allReduce: of the data; else of one part

  /// Elements of a part; of an allReduce the last parts may have fewer, or none.
  std::int64_t partElements(int members) const {
    return kind == Kind::allReduce ? (elements + members - 1) / members : elements;
  }
  /// Elements of `arrived`.
  std::int64_t arrivedElements(int members) const { return partElements(members) * members; }
  /// Elements that a member sends to others, where everyone sends directly to everyone.
  std::int64_t sentElements(int member, int members) const;
  friend bool operator==(const Collective&, const Collective&) = default;
};

/// "all-reduce".
const char* nameOf(Collective::Kind kind);

/// Throws std::runtime_error: collective `number` of a stage is started, and has not finished since it was last
/// started.
[[noreturn]] void refuseStart(const Collective& what, int number);

/// A collective cannot end, because the run does. Why is known to the transport.
class PeerGone : public std::exception {
public:
  const char* what() const noexcept override { return "a member of the team, or another rank, has stopped"; }
};

class Team {
public:
  virtual ~Team() = default;
  virtual int member() const = 0;  ///< 0 … members() - 1
  virtual int members() const = 0; ///< at least 1

  /// Before a kernel that makes `data` in parts (Stream::made): what is final may be sent at once. start() follows,
  /// with the same memory, which is the team's from here on.
  virtual void follow(int /*collective*/, Stream&, const std::byte* /*data*/, std::byte* /*arrived*/) {}
  /// Begins collective `collective` when the stream has come here. Until finish() its memory is the team's: `data` must
  /// not change, `arrived` (arrivedElements()) must not be read. One that has been started must be finished before it
  /// is started again; several may be under way.
  virtual void start(int collective, Stream& q, const std::byte* data, std::byte* arrived) = 0;
  /// What is put into the stream from now on finds the result in `arrived`. Throws PeerGone, and what the device throws
  /// in a sum.
  virtual void finish(int collective, Stream& q) = 0;
  /// Whether start() and finish() may be recorded (Replay.h).
  virtual bool records() const = 0;
};

} // namespace pdcrt
