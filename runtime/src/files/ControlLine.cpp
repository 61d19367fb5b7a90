// Words apart by one space, numbers by from_chars.
#include "pdcrt/ControlLine.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace pdcrt {
namespace {

constexpr std::size_t longestWord = 256; ///< of names: hosts, hashes, actions

/// Takes the text up to `separator`, or all of it, off the front of `text`.
std::string_view take(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

template <class T>
bool parseNumber(std::string_view text, T least, T most, T& number) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  return problem == std::errc() && end == text.data() + text.size() && number >= least && number <= most;
}

/// Printable ASCII, so that nothing of a message moves a terminal's cursor.
bool parseName(std::string_view text, std::string& name) {
  if (text.empty() || text.size() > longestWord) return false;
  for (const char c : text)
    if (c <= 0x20 || c >= 0x7f) return false;
  name = text;
  return true;
}

/// "1.0,3.0" as "stage 1, replica 0; stage 3, replica 0"; "1.0.2" as "stage 1, replica 0, member 2".
bool parseStages(std::string_view text, std::string& stages) {
  if (text.size() > 64 * longestWord) return false;
  while (!text.empty()) {
    std::string_view host = take(text, ',');
    const bool hasMember = std::count(host.begin(), host.end(), '.') == 2;
    int stage = 0, replica = 0, member = 0;
    if (!parseNumber(take(host, '.'), 0, mostRanks, stage)) return false;
    if (!parseNumber(hasMember ? take(host, '.') : host, 0, mostRanks, replica)) return false;
    if (hasMember && !parseNumber(host, 0, mostRanks, member)) return false;
    stages += (stages.empty() ? "stage " : "; stage ") + std::to_string(stage) + ", replica " +
              std::to_string(replica) + (hasMember ? ", member " + std::to_string(member) : "");
  }
  return !stages.empty();
}

} // namespace

bool parseHello(std::string_view line, HelloLine& hello) {
  hello = {};
  if (take(line, ' ') != "hello") return false;
  if (!parseName(take(line, ' '), hello.token) || !parseNumber(take(line, ' '), 1, 1 << 30, hello.process) ||
      !parseName(take(line, ' '), hello.host))
    return false;
  std::string_view hash = take(line, ' ');
  if (!parseName(take(hash, '.'), hello.hash) || (!hash.empty() && !parseName(take(hash, '.'), hello.build)) ||
      (!hash.empty() && !parseName(hash, hello.variable)))
    return false;
  while (!line.empty()) {
    std::string_view word = take(line, ' ');
    HelloLine::Rank& rank = hello.ranks.emplace_back();
    if (!parseNumber(take(word, ':'), 0, mostRanks - 1, rank.number) || !parseStages(word, rank.stages)) return false;
  }
  return !hello.ranks.empty() && hello.ranks.size() <= static_cast<std::size_t>(mostRanks);
}

bool parseBeat(std::string_view line, BeatLine& beat) {
  beat = {};
  return take(line, ' ') == "beat" && parseNumber(take(line, ' '), 0, mostRanks - 1, beat.rank) &&
         parseNumber(take(line, ' '), std::int64_t{0}, INT64_MAX, beat.count) &&
         parseNumber(take(line, ' '), 0, 3, beat.phase) && parseName(take(line, ' '), beat.action) &&
         parseNumber(line, 0.0, 1e15, beat.milliseconds);
}

bool parseBye(std::string_view line, int& code) {
  return take(line, ' ') == "bye" && parseNumber(line, 0, 255, code);
}

} // namespace pdcrt
