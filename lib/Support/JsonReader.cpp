#include "pdc/Support/JsonReader.h"

#include "pdc/Support/Names.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <set>

using namespace pdc;
using nlohmann::json;

struct JsonDocument::Contents {
  std::string file;
  Diagnostics* diags;
  json root;
  bool failed = false;
  Diagnostics unheard{nullptr}; ///< takes what follows from the first mistake
};

JsonDocument::JsonDocument(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;
JsonDocument::~JsonDocument() = default;

static Location locationOfByte(const std::string& file, const std::string& text, std::size_t byte) {
  std::size_t end = std::min(byte > 0 ? byte - 1 : 0, text.size());
  std::size_t lineStart = text.rfind('\n', end > 0 ? end - 1 : 0);
  lineStart = end == 0 || lineStart == std::string::npos ? 0 : lineStart + 1;
  auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n') + 1;
  return {file, "", static_cast<int>(line), static_cast<int>(end - lineStart) + 1};
}

Expected<JsonDocument> JsonDocument::parse(const std::string& text, const std::string& file, Diagnostics& diags) {
  auto contents = std::make_unique<Contents>();
  contents->file = file;
  contents->diags = &diags;
  // The library keeps the last of repeated keys; in a file that a person edited that is a mistake.
  std::vector<std::set<std::string>> keys;
  std::string repeated;
  auto watchKeys = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second && repeated.empty())
      repeated = value.get<std::string>();
    return true;
  };
  try {
    contents->root = json::parse(text, watchKeys);
  } catch (const json::parse_error& error) {
    return diags.error(locationOfByte(file, text, error.byte)) << "expected valid JSON here";
  } catch (const json::exception& error) { // "… number overflow parsing '1e999'", without the place
    const std::string message = error.what();
    const std::size_t quote = message.find('\'');
    const std::string number = quote == std::string::npos ? "" : message.substr(quote + 1, message.size() - quote - 2);
    return diags.error(locationOfByte(file, text, text.find(number) + 1))
           << "expected a number that fits a double, got '" << number.substr(0, 60) << "'";
  }
  if (!repeated.empty()) return diags.error({file}) << "the key '" << repeated << "' appears twice in one object";
  return JsonDocument(std::move(contents));
}

JsonNode JsonDocument::root() const {
  return {this, &contents_->root, ""};
}
bool JsonDocument::ok() const {
  return !contents_->failed;
}

static const json& valueOf(const void* value) {
  return *static_cast<const json*>(value);
}

/// The value as a message shows it, shortened.
static std::string shown(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

Diagnostics::Builder JsonNode::error() const {
  JsonDocument::Contents& contents = *document_->contents_;
  Diagnostics& diags = contents.failed ? contents.unheard : *contents.diags;
  contents.failed = true;
  return diags.error({contents.file, pointer_.empty() ? "/" : pointer_});
}

void JsonNode::expected(const std::string& what) const {
  if (!value_ || !document_->ok()) return;
  error() << "expected " << what << ", got " << shown(valueOf(value_));
}

/// A key as a part of a JSON pointer (RFC 6901).
static std::string escaped(std::string_view key) {
  std::string text;
  for (char c : key) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return text;
}

void JsonNode::refuseUnknown(std::initializer_list<std::string_view> keys, bool onlyMisspelt) const {
  if (!value_ || !document_->ok()) return;
  const json& value = valueOf(value_);
  if (!value.is_object()) return expected("an object");
  for (const auto& [key, member] : value.items()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    if (onlyMisspelt && nearestName(key, keys).empty()) continue;
    JsonNode(document_, &member, pointer_ + "/" + escaped(key)).error().help(helpForUnknown(key, keys))
        << "unknown key '" << key << "'";
    return;
  }
}

const JsonNode& JsonNode::allow(std::initializer_list<std::string_view> keys) const {
  refuseUnknown(keys, false);
  return *this;
}

const JsonNode& JsonNode::allowOthers(std::initializer_list<std::string_view> keys) const {
  refuseUnknown(keys, true);
  return *this;
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  if (!value_ || !document_->ok()) return std::nullopt;
  const json& value = valueOf(value_);
  if (!value.is_object()) {
    expected("an object");
    return std::nullopt;
  }
  auto member = value.find(std::string(key));
  if (member == value.end() || member->is_null()) return std::nullopt;
  return JsonNode(document_, &*member, pointer_ + "/" + escaped(key));
}

JsonNode JsonNode::operator[](std::string_view key) const {
  if (std::optional<JsonNode> member = find(key)) return *member;
  if (value_ && document_->ok()) error().help("add \"" + std::string(key) + "\"") << "'" << key << "' is missing";
  return {document_, nullptr, pointer_};
}

std::vector<JsonNode> JsonNode::elements() const {
  std::vector<JsonNode> result;
  if (!value_) return result;
  const json& value = valueOf(value_);
  if (!value.is_array()) {
    expected("an array");
    return result;
  }
  for (std::size_t i = 0; i < value.size(); ++i)
    result.push_back(JsonNode(document_, &value[i], pointer_ + "/" + std::to_string(i)));
  return result;
}

std::vector<std::pair<std::string, JsonNode>> JsonNode::members() const {
  std::vector<std::pair<std::string, JsonNode>> result;
  if (!value_) return result;
  const json& value = valueOf(value_);
  if (!value.is_object()) {
    expected("an object");
    return result;
  }
  for (const auto& [key, member] : value.items())
    result.emplace_back(key, JsonNode(document_, &member, pointer_ + "/" + escaped(key)));
  return result;
}

bool JsonNode::isText() const {
  return value_ && valueOf(value_).is_string();
}

std::string JsonNode::text() const {
  if (value_ && valueOf(value_).is_string()) return valueOf(value_).get<std::string>();
  expected("a string");
  return {};
}

bool JsonNode::boolean() const {
  if (value_ && valueOf(value_).is_boolean()) return valueOf(value_).get<bool>();
  expected("true or false");
  return false;
}

bool JsonNode::flag() const {
  if (value_ && valueOf(value_).is_number_integer())
    if (valueOf(value_) == 0 || valueOf(value_) == 1) return valueOf(value_) == 1;
  if (value_ && valueOf(value_).is_boolean()) return valueOf(value_).get<bool>();
  expected("true, false, 1 or 0");
  return false;
}

double JsonNode::nonNegative() const {
  if (value_ && valueOf(value_).is_number())
    if (double number = valueOf(value_).get<double>(); std::isfinite(number) && number >= 0) return number;
  expected("a number that is not negative");
  return 0;
}

std::int64_t JsonNode::integer(std::int64_t least, std::int64_t most) const {
  if (value_ && valueOf(value_).is_number()) {
    const json& value = valueOf(value_);
    bool fits = !value.is_number_unsigned() || value.get<std::uint64_t>() <= std::uint64_t{INT64_MAX};
    if (value.is_number_float()) {
      double number = value.get<double>();
      fits = std::abs(number) <= 0x1p53 && number == std::floor(number);
    }
    if (fits)
      if (auto number = value.get<std::int64_t>(); number >= least && number <= most) return number;
  }
  expected("an integer from " + std::to_string(least) + " to " + std::to_string(most));
  return least;
}

std::string JsonNode::oneOf(std::initializer_list<std::string_view> names) const {
  if (value_ && valueOf(value_).is_string()) {
    std::string found = valueOf(value_).get<std::string>();
    if (std::find(names.begin(), names.end(), found) != names.end()) return found;
  }
  std::string list;
  for (std::string_view name : names) list += (list.empty() ? "'" : ", '") + std::string(name) + "'";
  expected("one of " + list);
  return {};
}
