#include "pdcrt/OptimizerLayout.h"

#include "pdcrt/Arena.h"

using namespace pdcrt;

std::vector<std::string> pdcrt::optimizerPieces(const Training& training) {
  switch (training.optimizer) {
  case OptimizerKind::sgd: return {};
  case OptimizerKind::momentum: return {"velocity"};
  case OptimizerKind::adam:
  case OptimizerKind::adamw: return {"first_moment", "second_moment"};
  }
  return {};
}

OptimizerLayout::OptimizerLayout(const Training& training, std::size_t weightsBytes)
    : pieces_(optimizerPieces(training)), stride_(arenaBytes(weightsBytes)) {}

ParameterUpdate pdcrt::updateOf(const Training&, const ParameterRow&) {
  return {};
}
