// Protocol Buffers' wire format: https://protobuf.dev/programming-guides/encoding. Groups, which ONNX never had, are
// refused.
#include "Wire.h"

using namespace pdc;

/// Takes a varint off the front of `from`; false where there is none.
static bool readVarint(std::span<const std::byte>& from, std::uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 64 && !from.empty(); shift += 7) {
    auto byte = std::to_integer<std::uint64_t>(from.front());
    from = from.subspan(1);
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool WireReader::next(WireField& field) {
  if (rest_.empty() || failed()) return false;
  std::span<const std::byte> from = rest_;
  std::uint64_t tag = 0, size = 0;
  bool valid = readVarint(from, tag) && tag >> 3 != 0 && tag >> 32 == 0;
  field.number = static_cast<std::uint32_t>(tag >> 3);
  field.type = static_cast<WireType>(tag & 7);
  switch (field.type) {
  case WireType::varint: {
    std::span<const std::byte> behind = from;
    valid = valid && readVarint(behind, size);
    size = from.size() - behind.size();
    break;
  }
  case WireType::fixed64: size = 8; break;
  case WireType::fixed32: size = 4; break;
  case WireType::bytes: valid = valid && readVarint(from, size); break;
  default: valid = false;
  }
  if (!valid) {
    problem_ = "byte " + std::to_string(position_) + " does not start a field";
    return false;
  }
  if (size > from.size()) {
    problem_ = "the field at byte " + std::to_string(position_) + " needs " + std::to_string(size) + " bytes, " +
               std::to_string(from.size()) + " are left";
    return false;
  }
  field.payload = from.first(size);
  std::size_t length = rest_.size() - from.size() + size;
  field.whole = rest_.first(length);
  rest_ = rest_.subspan(length);
  position_ += length;
  return true;
}

std::uint64_t pdc::numberOf(const WireField& field) {
  std::span<const std::byte> from = field.payload;
  std::uint64_t value = 0;
  readVarint(from, value);
  return value;
}

std::optional<std::vector<std::uint64_t>> pdc::numbersOf(const WireField& field) {
  if (field.type == WireType::varint) return std::vector{numberOf(field)};
  if (field.type != WireType::bytes) return std::nullopt;
  std::vector<std::uint64_t> numbers;
  for (std::span<const std::byte> rest = field.payload; !rest.empty();)
    if (!readVarint(rest, numbers.emplace_back())) return std::nullopt;
  return numbers;
}

std::string_view pdc::textOf(const WireField& field) {
  return {reinterpret_cast<const char*>(field.payload.data()), field.payload.size()};
}

static void appendVarint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void pdc::appendLengthPrefix(std::string& out, std::uint32_t number, std::size_t length) {
  appendVarint(out, std::uint64_t{number} << 3 | static_cast<unsigned>(WireType::bytes));
  appendVarint(out, length);
}

void pdc::appendNumber(std::string& out, std::uint32_t number, std::int64_t value) {
  appendVarint(out, std::uint64_t{number} << 3 | static_cast<unsigned>(WireType::varint));
  appendVarint(out, static_cast<std::uint64_t>(value));
}

void pdc::appendText(std::string& out, std::uint32_t number, std::string_view bytes) {
  appendLengthPrefix(out, number, bytes.size());
  out += bytes;
}
