// Well-typed models at random, made of the examples of the registered ops.
//
// A model begins with a few inputs and grows op by op: an example of an op that the registry has is joined to values
// that are there, whose shapes are adapted (reshape, slice, broadcast), to parameters, new or used before, and to new
// inputs. Elementwise ops take any shape, with operands that broadcast. What has no gradient gets values that no
// trained parameter leads to, which makes side paths of integers and booleans. Some models begin with a table of
// parameters, and what layers use of it later in another order. What the interpreter refuses, or what is not finite, is
// taken back. In the end every loose end becomes a part of one of up to three losses.
#pragma once

#include "pdc/IR/OpDef.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pdc::testing {

using Tensors = std::map<std::string, Tensor>;

/// Minibatches that a model has data for.
inline constexpr int dataMinibatches = 2;
/// Of SGD, which trains them.
inline constexpr double learningRate = 1.0 / 64;
/// Of all random numbers that ops draw.
inline constexpr std::uint64_t drawSeed = 11;

struct RandomModel {
  std::uint64_t seed = 0;
  std::string text;            ///< of a module, whose @main has losses
  std::vector<Tensors> inputs; ///< by minibatch
  Tensors parameters;
  int operations = 0;

  /// Counts the operations, and drops the values of inputs and parameters that are not there any more.
  void describe(const Module& module);
};

const OpRegistry& allOps();

/// Ops that a generated model may hold and that have a gradient.
std::vector<const OpDef*> differentiableOps();

/// The model of this seed, whose losses and gradients are finite in f64, and which mostly can be cut into 1 + seed mod
/// 4 stages.
RandomModel randomModel(std::uint64_t seed);

/// Whether the model can be differentiated, and all of it is finite and of moderate size, the losses after an update
/// too.
bool isSound(const RandomModel& model);

/// A model that is `model` without one operation: its results became inputs, with the values that they had. Nothing
/// where nothing is left to train. `which` counts forward operations; the losses follow, which are left out.
std::vector<RandomModel> reductionsOf(const RandomModel& model);

} // namespace pdc::testing
