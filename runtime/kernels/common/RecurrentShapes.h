// What both targets' recurrent kernels ask of their options.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace pdcrt::recurrent {

/// "LSTM layer of 3 steps, batch 4, 5 hidden units"
template <class Options>
std::string describe(const char* layer, const Options& o) {
  return std::string(layer) + " of " + std::to_string(o.steps) + " steps, batch " + std::to_string(o.batch) + ", " +
         std::to_string(o.hidden) + " hidden units";
}

/// Throws std::runtime_error unless the sizes are positive.
template <class Options>
void checkSizes(const char* layer, const Options& o) {
  if (o.steps < 1 || o.batch < 1 || o.hidden < 1)
    throw std::runtime_error(describe(layer, o) + ": sizes must be positive");
}

/// Where `gate` stands in `order`; throws std::runtime_error if it does not.
inline std::int64_t place(const std::string& order, char gate, std::size_t gates) {
  const std::size_t at = order.find(gate);
  if (order.size() != gates || at == std::string::npos)
    throw std::runtime_error("'" + order + "' is no order of gates, '" + gate + "' is missing");
  return static_cast<std::int64_t>(at);
}

/// The position of the step that is taken n-th.
inline std::int64_t position(std::int64_t n, std::int64_t steps, bool reverse) {
  return reverse ? steps - 1 - n : n;
}

} // namespace pdcrt::recurrent
