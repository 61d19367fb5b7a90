// The few fields of Event that scalars need are encoded here: every generated program would else link protobuf, and for
// the checksum another library.
#include "EventFile.h"

#include "pdcrt/WriteFile.h"

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <unistd.h>
#include <utility>

namespace pdcrt {
namespace {

/// The checksum as TFRecords store it, rotated and shifted.
std::uint32_t maskedCrc(std::string_view bytes) {
  return std::rotr(extended({}, std::as_bytes(std::span(bytes))).crc, 15) + 0xA282EAD8;
}

template <class T>
std::string littleEndian(T value) {
  std::string bytes(sizeof value, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(value & 0xFF);
    value >>= 8;
  }
  return bytes;
}

// Protocol Buffers' wire format: a key of field number and type, then the value.
enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value > 0x7F; value >>= 7) bytes += static_cast<char>(0x80 | (value & 0x7F));
  return bytes + static_cast<char>(value);
}

std::string key(int field, Wire wire) {
  return varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire));
}

std::string bytesField(int field, std::string_view bytes) {
  return key(field, Wire::bytes) + varint(bytes.size()) + std::string(bytes);
}

/// Event: wall_time = 1, step = 2, and `what`.
std::string event(std::int64_t step, const std::string& what) {
  const std::chrono::duration<double> time = std::chrono::system_clock::now().time_since_epoch();
  return key(1, Wire::fixed64) + littleEndian(std::bit_cast<std::uint64_t>(time.count())) + key(2, Wire::varint) +
         varint(static_cast<std::uint64_t>(step)) + what;
}

} // namespace

EventFile::~EventFile() {
  if (file_) std::fclose(file_);
}

Status EventFile::open(const std::string& folder, std::int64_t step) {
  if (Status status = makeFolder(folder); !status) return status;
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  path_ = folder + "/events.out.tfevents." +
          std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(now).count()) + "." + host + "." +
          std::to_string(::getpid());
  file_ = std::fopen(path_.c_str(), "wbe");
  if (!file_) return {Exit::cannotWrite, path_ + ": cannot be written: " + std::strerror(errno)};
  constexpr int fileVersion = 3, sessionLog = 7, status = 1, start = 1;
  record(event(0, bytesField(fileVersion, "brain.Event:2")));
  record(event(step, bytesField(sessionLog, key(status, Wire::varint) + varint(start))));
  return flush();
}

void EventFile::scalar(std::string_view tag, std::int64_t step, double value) {
  if (!file_) return;
  constexpr int summary = 5, values = 1, tagField = 1, simpleValue = 2;
  const std::string point = bytesField(tagField, tag) + key(simpleValue, Wire::fixed32) +
                            littleEndian(std::bit_cast<std::uint32_t>(static_cast<float>(value)));
  record(event(step, bytesField(summary, bytesField(values, point))));
}

void EventFile::record(const std::string& message) {
  const std::string length = littleEndian(std::uint64_t{message.size()});
  const std::string bytes = length + littleEndian(maskedCrc(length)) + message + littleEndian(maskedCrc(message));
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) lost_ = true;
}

Status EventFile::flush() {
  if (!file_) return {};
  if (std::fflush(file_) != 0) lost_ = true;
  if (!std::exchange(lost_, false)) return {};
  return {Exit::cannotWrite, path_ + ": cannot be written: " + std::strerror(errno)};
}

} // namespace pdcrt
