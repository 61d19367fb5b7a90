// Reading JSON files that people edit: every mistake is reported with the JSON pointer of its place.
//
//   plan.json:/stages/1/replicas: error: expected an integer from 1 to 1048576, got -2
//
// Readers are straight-line code: after the first mistake in a document every read returns a default, and ok() is
// false. nlohmann-json stays out of this header.
#pragma once

#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Expected.h"

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pdc {

class JsonDocument;

/// A value inside a document, which must outlive it.
class JsonNode {
public:
  /// Checks that this is an object with no other keys than these.
  const JsonNode& allow(std::initializer_list<std::string_view> keys) const;
  /// Checks that this is an object none of whose other keys looks like a misspelling of these: for files of other
  /// programs, which may say more.
  const JsonNode& allowOthers(std::initializer_list<std::string_view> keys) const;

  /// The member `key`; an error if it is missing (or this is no object).
  JsonNode operator[](std::string_view key) const;
  /// The member `key`, unless it is missing or null.
  std::optional<JsonNode> find(std::string_view key) const;
  /// The elements; an error if this is no array.
  std::vector<JsonNode> elements() const;
  /// Keys and values, in the order of the keys; an error if this is no object.
  std::vector<std::pair<std::string, JsonNode>> members() const;

  bool isText() const;
  std::string text() const;
  bool boolean() const;
  /// true, false, 1 or 0.
  bool flag() const;
  /// A finite number >= 0: all sizes and times are.
  double nonNegative() const;
  /// A number without a fraction ("16e9" is one) in [least, most].
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  /// An integer >= 0 that counts bytes.
  std::int64_t bytes() const { return integer(0, std::int64_t{1} << 53); }
  /// One of `names`.
  std::string oneOf(std::initializer_list<std::string_view> names) const;

  /// An error at this place: `node.error() << "stage 3 does not exist";`. Only a document's first one is reported.
  Diagnostics::Builder error() const;

private:
  friend class JsonDocument;
  JsonNode(const JsonDocument* document, const void* value, std::string pointer)
      : document_(document), value_(value), pointer_(std::move(pointer)) {}
  /// Reports "expected …, got …", once per document.
  void expected(const std::string& what) const;
  /// Reports the first key that is none of these, or only one that looks like one of these.
  void refuseUnknown(std::initializer_list<std::string_view> keys, bool onlyMisspelt) const;

  const JsonDocument* document_;
  const void* value_; ///< an nlohmann::json; nullptr after a mistake
  std::string pointer_;
};

/// A parsed file.
class JsonDocument {
public:
  /// Reports a syntax error (with line and column) or a repeated key.
  static Expected<JsonDocument> parse(const std::string& text, const std::string& file, Diagnostics& diags);
  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;
  ~JsonDocument();

  JsonNode root() const;
  /// Whether nothing was wrong so far.
  bool ok() const;

private:
  friend class JsonNode;
  struct Contents;
  explicit JsonDocument(std::unique_ptr<Contents> contents);
  std::unique_ptr<Contents> contents_;
};

} // namespace pdc
