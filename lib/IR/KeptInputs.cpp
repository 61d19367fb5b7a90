#include "pdc/IR/KeptInputs.h"

#include "pdc/Support/JsonReader.h"

#include <nlohmann/json.hpp>

using namespace pdc;

std::string pdc::toJson(const KeptInputs& kept) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, inputs] : kept) json[name] = inputs;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

KeptInputs pdc::readKeptInputs(const JsonNode& node) {
  constexpr std::int64_t most = std::int64_t{1} << 31;
  KeptInputs kept;
  for (const auto& [name, inputs] : node.members()) {
    std::int64_t least = 0;
    for (const JsonNode& input : inputs.elements()) {
      kept[name].push_back(input.integer(least, most - 1));
      least = kept[name].back() + 1;
    }
  }
  return kept;
}
