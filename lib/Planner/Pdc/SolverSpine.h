// What must be computed, forwards and backwards, before and after a stage has a minibatch, whatever the stages are.
#pragma once

#include "Pdc/SolverProblem.h"

namespace pdc {

/// Forward and backward time of each block of the spine, 0 for the others. The spine are the blocks that every other
/// block depends on, or that depend on it, over tensors with gradients. If stages before a stage s hold the blocks S of
/// the spine, then a minibatch takes at least the sum of their times to come from stage 0 to s and its gradient to
/// return:
///
/// - s holds no ancestor of v in S, as the stages before s are closed under ancestors; so what s holds depends on v.
/// - Stage 0 holds a block of the spine, or only ancestors of its first one.
/// - So there is a way from stage 0 through all of S to s, and gradients come back along it; a stage on it takes at
///   least as long as its blocks of the spine.
///
/// Of a chain it is every block. Zeros, which are true too, for more than 20,000 blocks.
std::vector<double> spineMs(const SolverProblem& problem);

} // namespace pdc
