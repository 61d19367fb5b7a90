// Linear stages (LinearStages.h) whose losses are finite while the gradients of stage 0 are not.
#pragma once

#include "LinearStages.h"

namespace linear {

/// Noise with targets that are far away.
class FarData : public NoiseData {
public:
  pdcrt::Status read(const pdcrt::DataRow& row, std::int64_t minibatch, std::byte* destination) override {
    pdcrt::Status status = NoiseData::read(row, minibatch, destination);
    auto* values = reinterpret_cast<float*>(destination);
    for (std::int64_t i = 0; row.label && i < row.shape.elements(); ++i) values[i] *= 1e4f;
    return status;
  }
};

/// Starting weights with a tiny gain in stage 0, which stage 1 undoes.
inline pdcrt::Status overflowing(const char* name, pdcrt::Element element, const pdcrt::Shape& shape,
                                 std::span<std::byte> destination, const pdcrt::MemberPart& = {}) {
  if (pdcrt::Status status = readInitial(name, element, shape, destination); !status) return status;
  auto* values = reinterpret_cast<float*>(destination.data());
  const std::string text = name;
  const float factor = text == "g0" ? 1e-37f : text == "w1" ? 1e37f : 1;
  for (std::int64_t i = 0; i < shape.elements(); ++i) values[i] *= factor;
  return {};
}

} // namespace linear
