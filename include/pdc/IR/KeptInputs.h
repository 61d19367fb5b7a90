// Which inputs of frozen weights of 8 bits keep their values in f32, as profiles and passes write it:
//   {"h.0.mlp.c_fc.weight": [3, 77], …}
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pdc {

class JsonNode;

/// By the names of the weights; ascending.
using KeptInputs = std::map<std::string, std::vector<std::int64_t>>;

std::string toJson(const KeptInputs& kept);
/// Errors are the document's: an input is negative, or no larger than the one before.
KeptInputs readKeptInputs(const JsonNode& node);

} // namespace pdc
