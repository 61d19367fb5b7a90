// A cursor over a message in Protocol Buffers' wire format, which shows where in the file a field lies.
//
// The generated parsers of the onnx package copy what they read and hide its place; parameters are references into the
// file, so their places are what the importer needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

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
  bool readVarint(std::span<const std::byte>& from, std::uint64_t& value);

  std::span<const std::byte> rest_;
  std::size_t position_;
  std::string problem_;
};

/// Appends a tag and length to `out`, as they stand before a field's payload.
void appendLengthPrefix(std::string& out, std::uint32_t number, std::size_t length);

} // namespace pdc
