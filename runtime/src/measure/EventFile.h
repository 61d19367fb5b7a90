// A file of scalars that TensorBoard opens: TFRecords with Event messages (tensorflow/core/util/event.proto,
// summary.proto).
//
// A record is the length in 8 bytes, the masked CRC-32C of these, the message, and the masked CRC-32C of the message.
// All numbers are little-endian.
#pragma once

#include "pdcrt/Status.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace pdcrt {

class EventFile {
public:
  EventFile() = default;
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  /// Makes `folder` where it is missing, and in it a new file "events.out.tfevents.TIME.HOST.PID". TensorBoard then
  /// forgets what other files of the folder have for `step` and later steps: they are of a run that ended, or that was
  /// replaced. Fails with Exit::cannotWrite.
  Status open(const std::string& folder, std::int64_t step);
  bool isOpen() const { return file_ != nullptr; }

  /// Appends a point of the curve `tag`. Where the file is not open, nothing happens.
  void scalar(std::string_view tag, std::int64_t step, double value);
  /// Hands the points to the system. Fails with Exit::cannotWrite, once, where some were lost.
  Status flush();

private:
  void record(const std::string& message);

  std::FILE* file_ = nullptr;
  std::string path_;
  bool lost_ = false;
};

} // namespace pdcrt
