// What exporters make of LSTM cells and layers that a model computes step by step, recognised.
#pragma once

#include "pdc/IR/Builder.h"

namespace pdc::ops {

/// OpRewrites::raise of `lstm`:
///
/// - the new cells f · c + i · g of a step, where f and i are sigmoids and g is tanh of three blocks of columns of
///   sums h · R + rest, and where o · tanh(new cells), o the sigmoid of the fourth block, is the new state: `lstm` over
///   one step, whichever order the blocks have, sliced before or after the activations. Both the cells and the state
///   are replaced;
/// - a concatenation, over time, of the states of such steps in a row, forwards or backwards, whose inputs depend on
///   none of them: `lstm` over all steps. Products of their inputs with one weight become one product.
Value* raiseLstm(Operation& root, Builder& b);

} // namespace pdc::ops
