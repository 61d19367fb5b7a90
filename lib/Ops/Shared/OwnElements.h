// Ops that draw random numbers, divided over a team: members draw what a whole op would draw for their elements.
#pragma once

#include "Shared/LoopsOf.h"

#include "pdcrt/Random.h"

#include <vector>

namespace pdc::ops {

/// `run` and `members`, see pdcrt::OwnElements. An op that all of a tensor is of has the defaults.
std::vector<AttributeDef> ownElementsAttributes();

/// Reports unless operand or result `part`, whose elements draw, can be such a part.
Status requireOwnElements(const InferContext& c, const char* op, const Type& part);

/// Of a verified op, for this member of its team.
pdcrt::OwnElements ownElementsOf(const Attributes& attributes, std::int64_t member = 0);

/// For OpSplit::loops: `loops`, but none for an op that is a member's already.
Loops loopsOfWhole(const Operation& op, Loops loops);

/// For OpSplit::divide: the same op on parts, told which elements of result `drawn`, the mask, it has.
std::vector<Value*> divideDrawn(const Operation& op, std::size_t drawn, const Loops& loops, const Division& division,
                                const std::vector<Value*>& operands, Builder& b);

} // namespace pdc::ops
