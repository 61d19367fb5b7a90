#include "Loads.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

namespace pdcrt {

std::vector<double>& Loads::layer(std::size_t place, std::size_t size) {
  if (layers_.size() <= place) layers_.resize(place + 1);
  if (layers_[place].size() < size) layers_[place].resize(size);
  return layers_[place];
}

void Loads::add(const Training& training, const Stage& stage, const std::byte* slot, std::int64_t valid) {
  if (valid < training.batch) return;
  for (const OutputRow& row : stage.outputs) {
    if (row.kind != OutputKind::load) continue;
    const std::optional<std::size_t> place = placeOf(training.loads, row.name);
    if (!place) continue;
    const auto* numbers = reinterpret_cast<const float*>(slot + row.offset);
    std::vector<double>& sums = layer(*place, static_cast<std::size_t>(row.shape.elements()));
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += numbers[i];
  }
}

void Loads::add(const Message& message) {
  const auto from = static_cast<std::size_t>(message.numbers[0]);
  const auto size = static_cast<std::size_t>(message.numbers[1]);
  std::vector<double>& sums = layer(static_cast<std::size_t>(message.index), size);
  for (std::size_t i = 0; i < std::size(message.values) && from + i < size; ++i) sums[from + i] += message.values[i];
}

std::vector<Message> Loads::messages() const {
  std::vector<Message> messages;
  for (std::size_t place = 0; place < layers_.size(); ++place) {
    const std::vector<double>& sums = layers_[place];
    for (std::size_t from = 0; from < sums.size(); from += std::size(Message().values)) {
      Message& message = messages.emplace_back();
      message.topic = Topic::load;
      message.index = static_cast<std::int64_t>(place);
      message.numbers[0] = from;
      message.numbers[1] = sums.size();
      std::copy_n(sums.begin() + static_cast<std::ptrdiff_t>(from),
                  std::min(std::size(message.values), sums.size() - from), message.values);
    }
  }
  return messages;
}

std::string Loads::text(const Training& training) const {
  nlohmann::ordered_json object;
  for (std::size_t place = 0; place < std::min(layers_.size(), training.loads.size()); ++place) {
    if (layers_[place].size() < 2 || !(layers_[place].back() > 0)) continue;
    std::vector<double> shares(layers_[place].begin(), layers_[place].end() - 1);
    const double taken = std::accumulate(shares.begin(), shares.end(), 0.0);
    for (double& share : shares) share /= std::max(taken, 1.0);
    const double fullest = *std::max_element(shares.begin(), shares.end()) * static_cast<double>(shares.size());
    object[training.loads[place]] = {
        {"dropped", (layers_[place].back() - taken) / layers_[place].back()}, {"shares", shares}, {"fullest", fullest}};
  }
  return object.empty() ? "" : object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

} // namespace pdcrt
