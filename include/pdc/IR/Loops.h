// Which axes of an operation's operands and results run together, and with that: how a team of devices divides it.
//
// The definition of an op is a nest of loops. Y[r, o] = sum over i of X[r, i] · W[i, o] has the indices r, i and o: r
// and o are axes of the result, i is summed. A team of `parts` members divides an operation along one index: each
// member computes the same op on its part of the operands that have the index, and on all of the others. Results that
// have the index are then divided in the same way; results that were reduced over it are put together of all members'
// (Combine).
//
// An op says in its own file which indices may be divided (OpSplit::loops in OpHooks.h); what it does not say is not
// divided. Elementwise ops and views are derived here. Every op is tested: OpsLoopsTest divides its examples.
#pragma once

#include "pdc/IR/Type.h"
#include "pdcrt/Part.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace pdc {

class Builder;
class Operation;
class Value;

/// How a result that was reduced over a divided index is made of the members' results.
enum class Combine : std::uint8_t { sum, mean, max, min };

/// An axis along which an index runs: axis = blocks · index · rest, slowest first. An axis [3·H·d] has H with 3 blocks.
struct LoopRun {
  int index = 0, axis = 0;
  std::int64_t blocks = 1;
};

/// A result is reduced over an index that it does not have.
struct Reduced {
  int index = 0;
  Combine combine = Combine::sum;
};

/// An operand that is added to result 0: a bias along an axis of it, or element by element.
struct Added {
  int operand = 0;
  int axis = -1; ///< -1: element by element
};

/// The indices of one operation that may be divided.
struct Loops {
  std::vector<std::int64_t> sizes; ///< of the indices
  std::vector<char> pads; ///< by index: parts may be filled up with zeros, which no result that is read depends on
  std::vector<char> inOneBlock;               ///< by index: a member has elements that follow one another
  std::vector<std::vector<LoopRun>> operands; ///< by operand
  std::vector<std::vector<LoopRun>> results;  ///< by result
  std::vector<std::vector<Reduced>> over;     ///< by result; in neither: each member computes all of the result
  /// Optional in the op. Where an index is summed, one member has it, or it is added to the sum.
  std::optional<Added> added;

  Loops() = default;
  explicit Loops(const Operation& op);

  /// A new index; the number that it has.
  int index(std::int64_t size, bool mayPad = false, bool isInOneBlock = false);
  Loops& operand(std::size_t i, int axis, int index, std::int64_t blocks = 1);
  Loops& result(std::size_t i, int axis, int index, std::int64_t blocks = 1);
  Loops& reduce(std::size_t result, int index, Combine combine = Combine::sum);
};

/// A division of an operation: `blocks` blocks of an index, each in `parts` equal parts that follow one another; member
/// m has part m of every block. One block that has no equal parts is filled up behind its end, where the index may be.
struct Division {
  int index = 0;
  std::int64_t parts = 1, blocks = 1;
};

/// How a value lies over the members of a team.
struct Form {
  enum class Kind : std::uint8_t {
    whole,  ///< each member has all of it
    split,  ///< `axis` is `blocks` blocks, each of which is divided into as many equal parts as there are members
    partial ///< each member has a tensor of its whole shape; `combine` makes the value of them
  };
  Kind kind = Kind::whole;
  int axis = 0;
  std::int64_t blocks = 1;
  Combine combine = Combine::sum;
  /// The size of an axis that has no equal parts. Each member has ⌈size / members⌉ of it, zeros beyond its end. 0: the
  /// parts are equal.
  std::int64_t padded = 0;

  static Form split(int axis, std::int64_t blocks, std::int64_t padded = 0) {
    return {Kind::split, axis, blocks, {}, padded};
  }
  static Form partial(Combine combine) { return {Kind::partial, 0, 1, combine}; }
  bool isWhole() const { return kind == Kind::whole; }
  bool isSplit() const { return kind == Kind::split; }
  bool isPartial() const { return kind == Kind::partial; }
  friend bool operator==(const Form&, const Form&) = default;
};

using pdcrt::mostMembers;

/// The type of a member's part of a value: smaller along the axis of a split.
Type partOf(const Type& whole, const Form& form, std::int64_t parts);
/// The type of the value of which a member has such a part.
Type wholeOf(const Type& part, const Form& form, std::int64_t parts);
/// The split of an axis in parts, padded if they are not equal.
Form splitOf(const Type& whole, int axis, std::int64_t blocks, std::int64_t parts);
/// The same for the tables of a stage program and for files; of a form that is whole or split.
pdcrt::Part storedPart(const Type& whole, const Form& form, std::int64_t parts);
/// Whether a value of the type can be split so: its parts are equal or padded, and each can have the layout.
bool canSplit(const Type& whole, const Form& form, std::int64_t parts);

/// What the op says, or what is derived.
Loops loopsOf(const Operation& op);

/// The division of the operation in which operand or result `i` is split so; nothing where it has none.
std::optional<Division> divisionOfOperand(const Operation& op, const Loops& loops, std::size_t i, const Form& form,
                                          std::int64_t parts);
std::optional<Division> divisionOfResult(const Operation& op, const Loops& loops, std::size_t i, const Form& form,
                                         std::int64_t parts);

/// Whether the index has as many equal parts, and every operand and result can be split so.
bool canDivide(const Operation& op, const Loops& loops, const Division& division);

/// The forms of operands and results in a division.
Form formOfOperand(const Loops& loops, std::size_t i, const Division& division);
Form formOfResult(const Loops& loops, std::size_t i, const Division& division);

/// Makes what one member computes, of operands that have the forms of the division: the same op on smaller types, or
/// what OpSplit::divide makes. Absent operands are null; so may be what is `added`. Returns the results, in their
/// forms; empty, with an error reported, where that failed.
std::vector<Value*> divided(const Operation& op, const Loops& loops, const Division& division,
                            const std::vector<Value*>& operands, Builder& b);

/// Row-major shapes as common factors: reshaping `from` to `to` keeps these apart. Each factor has its axis in both,
/// and how many blocks of it lie on that axis. Factors of size 1 are left out, and so are axes that have no common
/// factors.
struct CommonFactor {
  std::int64_t size = 1;
  int fromAxis = 0, toAxis = 0;
  std::int64_t fromBlocks = 1, toBlocks = 1;
};
std::vector<CommonFactor> commonFactors(const Shape& from, const Shape& to);

} // namespace pdc
