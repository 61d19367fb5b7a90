// Readers of files and of lines from the network, as fuzz targets: each takes any bytes, and must neither crash nor
// hang nor take gigabytes. Where a reader succeeds, what it has read must be writable and read back as the same.
#pragma once

#include <span>
#include <string>

namespace pdc::fuzz {

/// Calls a reader with some bytes; ends the process (abort) where something that must hold does not.
using Target = void (*)(const std::string& bytes);

struct Reader {
  const char* name;
  Target target;
};

std::span<const Reader> jsonReaders();    ///< plans, clusters, schedules, foreign planners' problems, traces
std::span<const Reader> onnxReaders();    ///< models, their external data, tensors, IR, profiles
std::span<const Reader> runtimeReaders(); ///< what a generated program and its supervisor read

/// The reader of that name, null if this program (PDC_READERS) has none.
const Reader* findReader(const std::string& name);

/// Ends the process, with `what` on standard error.
[[noreturn]] void fail(const char* what);

/// A path at which `bytes` can be read, until the next call. The file is in memory.
std::string fileOf(const std::string& bytes);

} // namespace pdc::fuzz
