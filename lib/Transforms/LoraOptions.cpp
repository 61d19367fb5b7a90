// The options of the pass add-lora, as text.
#include "pdc/Transforms/Transforms.h"

#include <charconv>
#include <cmath>
#include <set>

using namespace pdc;

namespace {

template <class Number>
bool parse(const std::string& text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && at == end;
}

Failure wrong(const std::string& key, const std::string& text, const std::string& expected, Diagnostics& diags) {
  return diags.error({}).exit(ExitCode::usage) << "--lora: " << key << "='" << text << "' is not " << expected;
}

/// "0/2 of 3".
Status parseSlices(const std::string& text, LoraOptions& options, Diagnostics& diags) {
  const std::string expected = "some of a number of slices, as in 0/2 of 3";
  const std::size_t of = text.find(" of ");
  if (of == std::string::npos || !parse(text.substr(of + 4), options.slices) || options.slices < 2)
    return wrong("slices", text, expected, diags);
  std::set<std::int64_t> chosen;
  for (std::size_t begin = 0, end = 0; begin < of; begin = end + 1) {
    end = std::min(text.find('/', begin), of);
    std::int64_t slice = 0;
    if (!parse(text.substr(begin, end - begin), slice) || slice < 0 || slice >= options.slices ||
        !chosen.insert(slice).second)
      return wrong("slices", text, expected, diags);
  }
  if (chosen.empty()) return wrong("slices", text, expected, diags);
  options.chosenSlices.assign(chosen.begin(), chosen.end());
  return success;
}

} // namespace

Expected<LoraOptions> pdc::loraOptions(const std::map<std::string, std::string>& options, Diagnostics& diags) {
  LoraOptions lora;
  bool hasAlpha = false;
  for (const auto& [key, text] : options) {
    if (key == "rank" && (!parse(text, lora.rank) || lora.rank < 1))
      return wrong(key, text, "a whole number of at least 1", diags);
    if (key == "alpha") {
      if (!parse(text, lora.alpha) || !std::isfinite(lora.alpha) || lora.alpha == 0)
        return wrong(key, text, "a number other than 0", diags);
      hasAlpha = true;
    }
    if (key == "dropout" && (!parse(text, lora.dropout) || !(lora.dropout >= 0 && lora.dropout < 1)))
      return wrong(key, text, "a ratio from 0 to below 1", diags);
    if (key == "seed" && !parse(text, lora.seed)) return wrong(key, text, "a whole number", diags);
    if (key == "slices" && !parseSlices(text, lora, diags)) return failure;
    if (key == "targets") lora.targets = text;
    if (key == "train") lora.train = text;
  }
  if (lora.targets.empty())
    return diags.error({}).exit(ExitCode::usage).help("write targets=all-linear, or targets=REGEX for some layers")
           << "--lora names no targets";
  if (!hasAlpha) lora.alpha = static_cast<double>(lora.rank);
  return lora;
}
