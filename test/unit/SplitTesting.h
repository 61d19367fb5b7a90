// How far the members of a team are from the graph that they divide.
#pragma once

#include "TransformsTesting.h"
#include "pdc/IR/TeamInterpreter.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace pdc::testing {

/// The largest relative difference, in f64, of the losses and gradients of @main and @evaluate in `whole` and of their
/// members in `members`, which have the names with `suffix`. Gradients differ norm by norm; those that are 0 but for
/// rounding, in `zeros`, are left out. Infinite where a graph cannot be run.
inline double largestDifference(Model& whole, Model& members, const std::string& suffix,
                                std::vector<std::string>* zeros = nullptr) {
  double most = 0;
  for (const char* name : {"main", "evaluate"}) {
    const Graph& graph = *whole.module->findGraph(name);
    const Graph& member = *members.module->findGraph(name + suffix);
    const auto inputs = randomInputs(graph, 3, 10), parameters = randomParameters(*whole.module, 3);
    const auto expected = interpret(graph, inputs, parameters, Precision::f64, whole.diags, 5, 2);
    const auto actual = interpretTeam(member, inputs, parameters, Precision::f64, whole.diags, 5, 2);
    if (!expected || !actual) return INFINITY;
    most = std::max(most, std::abs(actual->loss - expected->loss) / std::abs(expected->loss));
    EXPECT_EQ(actual->gradients.size(), expected->gradients.size());
    for (const auto& [parameter, gradient] : expected->gradients) {
      double distance = 0, norm = 0;
      for (std::int64_t i = 0; i < gradient.elements(); ++i) {
        distance += std::pow(actual->gradients.at(parameter).asDouble(i) - gradient.asDouble(i), 2);
        norm += std::pow(gradient.asDouble(i), 2);
      }
      if (norm > 1e-20)
        most = std::max(most, std::sqrt(distance / norm));
      else if (zeros)
        zeros->push_back(parameter);
    }
  }
  return most;
}

} // namespace pdc::testing
