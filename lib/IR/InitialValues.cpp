// Philox blocks of four words, which make four elements.
#include "pdc/IR/InitialValues.h"

#include "pdcrt/Hash.h"
#include "pdcrt/Random.h"

#include <array>
#include <cmath>
#include <numbers>
#include <sstream>

using namespace pdc;

std::string pdc::toString(const InitialValues& values) {
  std::ostringstream text;
  switch (values.kind) {
  case InitialValues::Kind::constant: text << values.size; break;
  case InitialValues::Kind::uniform: text << "U(-" << values.size << ", " << values.size << ")"; break;
  case InitialValues::Kind::normal: text << "N(0, " << values.size << "²)"; break;
  }
  return text.str();
}

/// In (0, 1), symmetric about 1/2.
static double unit(std::uint32_t word) {
  return (static_cast<double>(word) + 0.5) * 0x1p-32;
}

/// Four elements of size 1.
static std::array<double, 4> fourOf(InitialValues::Kind kind, const pdcrt::PhiloxBlock& words) {
  std::array<double, 4> values{};
  for (std::size_t i = 0; i < 4; ++i) values[i] = 2 * unit(words[i]) - 1;
  if (kind == InitialValues::Kind::uniform) return values;
  for (std::size_t i = 0; i < 4; i += 2) { // Box and Muller
    const double radius = std::sqrt(-2 * std::log(unit(words[i])));
    const double angle = 2 * std::numbers::pi * unit(words[i + 1]);
    values[i] = radius * std::cos(angle);
    values[i + 1] = radius * std::sin(angle);
  }
  return values;
}

Tensor pdc::drawnTensor(const DrawnValues& drawn, const std::string& name, const Type& type) {
  Tensor tensor(type);
  const auto& [kind, size] = drawn.values;
  if (kind == InitialValues::Kind::constant && size == 0) return tensor;
  const std::uint64_t stream = pdcrt::hashOf(name);
  std::array<double, 4> four{1, 1, 1, 1};
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    if (i % 4 == 0 && kind != InitialValues::Kind::constant) {
      pdcrt::PhiloxBlock counter =
          pdcrt::philoxCounter(static_cast<std::uint32_t>(i / 4), pdcrt::initialValuesStream, stream);
      four = fourOf(kind, pdcrt::philox(counter, drawn.seed));
    }
    tensor.set(i, size * four[static_cast<std::size_t>(i % 4)]);
  }
  return tensor;
}
