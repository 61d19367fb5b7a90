// How the elements of a tensor lie over the members of a team (Team.h), and copies between tensors that lie in
// different ways.
//
// A divided tensor is cut along one axis. The axis is `blocks` blocks of B = wholeSize / blocks elements; each member
// has a share of s = ⌈B / of⌉ consecutive elements of every block, one share after the other. So element j of member
// m's axis is element
//
//     ⌊j / s⌋ · B + m · s + j mod s
//
// of the whole axis. Where m · s + j mod s is not below B, it is padding: zero, and no element of the whole. The
// compiler's Form (pdc/IR/Loops.h) says the same of values.
//
// Where a part has an `order`, of one block without padding, that is element order[m · s + j] instead: experts lie
// where their loads want them.
#pragma once

#include "pdcrt/Shape.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pdcrt {

/// The most members of a team.
inline constexpr std::int64_t mostMembers = 1 << 16;

/// The default is a tensor that every member has whole.
struct Part {
  int axis = 0;
  std::int64_t blocks = 1;    ///< of the axis
  std::int64_t of = 1;        ///< members that the tensor is divided over; 1: it is whole
  std::int64_t wholeSize = 0; ///< of the axis in the whole tensor; without meaning where that is whole
  /// A permutation of the axis; empty: its elements are in order. The numbers are somewhere else (keptOrder).
  std::span<const std::int32_t> order = {};

  bool isWhole() const { return of == 1; }
  /// The elements of the axis that a member has of each block, and of all of them, with padding.
  std::int64_t share() const { return (wholeSize / blocks + of - 1) / of; }
  std::int64_t localSize() const { return blocks * share(); }
  /// Whether some member's part has padding.
  bool isPadded() const { return !isWhole() && share() * of * blocks != wholeSize; }

  friend bool operator==(const Part& a, const Part& b) {
    return a.axis == b.axis && a.blocks == b.blocks && a.of == b.of && a.wholeSize == b.wholeSize &&
           std::equal(a.order.begin(), a.order.end(), b.order.begin(), b.order.end());
  }
};

/// The same numbers, where they stay for the life of the process.
std::span<const std::int32_t> keptOrder(const std::vector<std::int32_t>& order);

/// What a member has of a tensor.
struct MemberPart {
  Part part;
  int member = 0; ///< without meaning where the tensor is whole
};

/// Whether `member` adds up the squares of a tensor's gradient in the norm of all gradients: each member those of its
/// part, member 0 those of a whole tensor, which all members have alike.
inline bool countsInNorm(const Part& part, int member) {
  return member == 0 || !part.isWhole();
}

/// Why a tensor of shape `whole` cannot lie so, as "has 3 blocks of an axis of 10"; empty: it can. All other functions
/// here require that. No number is trusted.
std::string problemOf(const Part& part, const Shape& whole);

/// The shape that each member has of a tensor of shape `whole`, and the way back.
Shape localShape(const Shape& whole, const Part& part);
Shape wholeShape(const Shape& local, const Part& part);

/// Copies all elements of a tensor of shape `whole` that both `source` and `target` have, from one to the other; what
/// else `to` has, it keeps. Row-major, elements of `elementBytes`; `from` and `to` have the bytes of their local
/// shapes. So a tensor in any parts is made of one in any others: of zeros, then of each source.
void copyPart(const Shape& whole, std::size_t elementBytes, const MemberPart& source, std::span<const std::byte> from,
              const MemberPart& target, std::span<std::byte> to);

} // namespace pdcrt
