#include "Html.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace pdc;

static constexpr const char* replacement = "\xEF\xBF\xBD";

/// Bytes of the UTF-8 sequence at the beginning of `text`; 0 if there is none (overlong forms and surrogates are none).
static std::size_t sequenceLength(std::string_view text) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  auto continues = [&](std::size_t i) { return i < text.size() && (byte(i) & 0xC0) == 0x80; };
  if (byte(0) < 0x80) return 1;
  if (byte(0) >= 0xC2 && byte(0) <= 0xDF && continues(1)) return 2;
  if ((byte(0) & 0xF0) == 0xE0 && continues(1) && continues(2)) {
    bool overlong = byte(0) == 0xE0 && byte(1) < 0xA0, surrogate = byte(0) == 0xED && byte(1) >= 0xA0;
    return overlong || surrogate ? 0 : 3;
  }
  if (byte(0) >= 0xF0 && byte(0) <= 0xF4 && continues(1) && continues(2) && continues(3)) {
    bool overlong = byte(0) == 0xF0 && byte(1) < 0x90, beyond = byte(0) == 0xF4 && byte(1) >= 0x90;
    return overlong || beyond ? 0 : 4;
  }
  return 0;
}

std::string pdc::escaped(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    std::size_t length = sequenceLength(text);
    char first = text[0];
    bool control = length == 1 && (static_cast<unsigned char>(first) < 0x20 || first == 0x7F);
    if (length == 0 || control)
      result += first == '\n' || first == '\t' ? " " : replacement;
    else if (first == '&')
      result += "&amp;";
    else if (first == '<')
      result += "&lt;";
    else if (first == '>')
      result += "&gt;";
    else if (first == '"')
      result += "&quot;";
    else if (first == '\'')
      result += "&#39;";
    else
      result += text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

std::string pdc::shortened(const std::string& text, std::size_t most) {
  std::size_t at = 0, characters = 0;
  while (at < text.size() && characters < most) {
    at += std::max<std::size_t>(1, sequenceLength(std::string_view(text).substr(at)));
    ++characters;
  }
  return at >= text.size() ? text : text.substr(0, at) + "…";
}

template <class... Values>
static std::string formatted(const char* format, Values... values) {
  char text[64];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string pdc::number(double value) {
  std::string text = formatted("%.2f", std::isfinite(value) ? value : 0.0);
  while (text.ends_with('0')) text.pop_back();
  if (text.ends_with('.')) text.pop_back();
  return text == "-0" ? "0" : text;
}

/// With three digits that count, at most three behind the point.
static std::string threeDigits(double value) {
  int before = value >= 100 ? 3 : value >= 10 ? 2 : 1;
  return formatted("%.*f", 3 - before + (value < 1 ? 1 : 0), value);
}

std::string pdc::timeText(double ms) {
  if (!(ms > 0)) return "0 ms";
  if (ms < 0.9995e-1) return threeDigits(ms * 1e3) + " µs";
  if (ms < 999.5) return threeDigits(ms) + " ms";
  return threeDigits(ms / 1e3) + " s";
}

std::string pdc::percentText(double fraction) {
  return formatted("%.1f %%", 100 * fraction);
}

std::string pdc::timesText(double factor) {
  return formatted("%.2f ×", factor);
}

std::string pdc::errorText(double error) {
  return formatted("%+.1f %%", 100 * error);
}

double pdc::niceStep(double range, int least) {
  double most = range / least, magnitude = std::pow(10, std::floor(std::log10(most)));
  return magnitude * (most >= 5 * magnitude ? 5 : most >= 2 * magnitude ? 2 : 1);
}

std::string pdc::tickText(double value, double step) {
  int digits = step >= 1 ? 0 : static_cast<int>(std::ceil(-std::log10(step) - 1e-9));
  return formatted("%.*f", digits, std::abs(value) < step / 2 ? 0.0 : value);
}
