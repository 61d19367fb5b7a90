// A cursor over a message in Protocol Buffers' wire format, which shows where in the file a field lies.
//
// The generated parsers of the onnx package copy what they read and hide its place; parameters are references into the
// file, so their places are what the importer needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pdc {

enum class WireType : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

struct WireField {
  std::uint32_t number = 0;
  WireType type = WireType::varint;
  std::span<const std::byte> whole; ///< tag, length and payload
  std::span<const std::byte> payload;
};

class WireReader {
public:
  /// Reads `message`, whose first byte is byte `offset` of the file.
  explicit WireReader(std::span<const std::byte> message, std::size_t offset = 0) : rest_(message), position_(offset) {}

  /// The next field; false at the end of the message, or when what follows is no field (`failed`).
  bool next(WireField& field);

  bool failed() const { return !problem_.empty(); }
  /// "byte 17 does not start a field", "the field at byte 17 needs 400 bytes, 33 are left".
  const std::string& problem() const { return problem_; }
  /// Offset in the file of the next field.
  std::size_t position() const { return position_; }

private:
  std::span<const std::byte> rest_;
  std::size_t position_;
  std::string problem_;
};

/// The number in a varint.
std::uint64_t numberOf(const WireField& field);
/// The numbers of a field of integers: one, or as many as a packed field has. Nothing where it is neither.
std::optional<std::vector<std::uint64_t>> numbersOf(const WireField& field);
/// The bytes of a field as text.
std::string_view textOf(const WireField& field);

/// Appends a tag and length to `out`, as they stand before a field's payload.
void appendLengthPrefix(std::string& out, std::uint32_t number, std::size_t length);
/// Appends a field with a number, or with bytes.
void appendNumber(std::string& out, std::uint32_t number, std::int64_t value);
void appendText(std::string& out, std::uint32_t number, std::string_view bytes);

} // namespace pdc
