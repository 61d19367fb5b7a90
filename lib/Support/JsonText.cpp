#include "pdc/Support/JsonText.h"

using namespace pdc;
using nlohmann::ordered_json;

static std::string onOneLine(const ordered_json& value) {
  if (!value.is_structured()) return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  std::string text;
  for (const auto& [key, member] : value.items()) {
    if (!text.empty()) text += ", ";
    if (value.is_object()) text += onOneLine(key) + ": ";
    text += onOneLine(member);
  }
  return (value.is_object() ? "{" : "[") + text + (value.is_object() ? "}" : "]");
}

static void print(std::string& text, const ordered_json& value, std::size_t indent, std::size_t column) {
  constexpr std::size_t width = 120;
  std::string line = onOneLine(value);
  if (!value.is_structured() || value.empty() || (column + line.size() < width && indent > 0)) {
    text += line;
    return;
  }
  std::string margin(indent + 2, ' ');
  text += value.is_object() ? "{" : "[";
  bool first = true;
  for (const auto& [key, member] : value.items()) {
    text += (first ? "\n" : ",\n") + margin;
    first = false;
    std::string label = value.is_object() ? onOneLine(key) + ": " : "";
    text += label;
    print(text, member, indent + 2, margin.size() + label.size());
  }
  text += "\n" + std::string(indent, ' ') + (value.is_object() ? "}" : "]");
}

std::string pdc::pretty(const ordered_json& value) {
  std::string text;
  print(text, value, 0, 0);
  return text + "\n";
}
