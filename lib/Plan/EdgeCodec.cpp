#include "pdc/Plan/EdgeCodec.h"

#include <charconv>
#include <sstream>

using namespace pdc;

std::string pdc::toText(const EdgeCodec& codec) {
  std::ostringstream text;
  text << "int8,alpha=" << codec.alpha << ",columns=" << codec.columns;
  return text.str();
}

template <class T>
static bool readNumber(const std::string& text, T& number) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  return problem == std::errc() && end == text.data() + text.size();
}

/// "alpha=6", "columns=4", between commas.
static std::optional<EdgeCodec> numbersFromText(const std::string& text) {
  EdgeCodec codec;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    if (word.starts_with("alpha=") && readNumber(word.substr(6), codec.alpha) && codec.alpha >= 0) continue;
    if (word.starts_with("columns=") && readNumber(word.substr(8), codec.columns) && codec.columns >= 0 &&
        codec.columns <= 65536)
      continue;
    return std::nullopt;
  }
  return codec;
}

std::optional<EdgeCodecChoice> pdc::edgeCodecChoiceFromText(const std::string& text) {
  if (text == "none") return EdgeCodecChoice{};
  const std::size_t comma = text.find(',');
  const std::string name = text.substr(0, comma);
  if ((name != "int8" && name != "auto") || text.ends_with(',')) return std::nullopt;
  const auto codec = numbersFromText(comma == std::string::npos ? "" : text.substr(comma + 1));
  if (!codec) return std::nullopt;
  return EdgeCodecChoice{name == "int8" ? EdgeCodecPolicy::all : EdgeCodecPolicy::automatic, *codec};
}

std::optional<EdgeCodec> pdc::edgeCodecFromText(const std::string& text) {
  const std::optional<EdgeCodecChoice> choice = edgeCodecChoiceFromText(text);
  if (!choice || choice->policy != EdgeCodecPolicy::all) return std::nullopt;
  return choice->codec;
}
