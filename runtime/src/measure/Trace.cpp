// Times in a trace are microseconds.
#include "Trace.h"

#include "pdcrt/MappedFile.h"

#include <cstdio>
#include <filesystem>
#include <iterator>

namespace pdcrt {
namespace {

/// Rows of a rank in the picture.
enum class TraceRow : int { compute, send, receive, allReduce };

TraceRow rowOf(const Action& action) {
  if (action.wait) return TraceRow::compute;
  if (isReduction(action.kind)) return TraceRow::allReduce;
  if (isComputation(action.kind)) return TraceRow::compute;
  return isSend(action.kind) ? TraceRow::send : TraceRow::receive;
}

const char* categoryOf(const Action& action) {
  if (action.wait) return "wait";
  constexpr const char* names[] = {"compute", "send", "receive", "all-reduce"};
  return names[static_cast<std::size_t>(rowOf(action))];
}

std::string partOf(const std::string& path, int rank) {
  return path + ".rank" + std::to_string(rank);
}

} // namespace

void Trace::add(const Action& action, double begin, double end) {
  if (events_.size() < events_.capacity())
    events_.push_back({action, begin, end});
  else
    ++leftOut_;
}

Status Trace::writePart(const std::string& path, int rank, double origin) const {
  std::string text;
  char line[256];
  constexpr const char* rows[] = {"compute", "send", "receive", "all-reduce"};
  std::snprintf(line, sizeof line,
                R"({"name":"process_name","ph":"M","pid":%d,"args":{"name":"rank %d"}})"
                ",\n",
                rank, rank);
  text += line;
  for (std::size_t i = 0; i < std::size(rows); ++i) {
    std::snprintf(line, sizeof line,
                  R"({"name":"thread_name","ph":"M","pid":%d,"tid":%zu,"args":{"name":"%s"}})"
                  ",\n",
                  rank, i, rows[i]);
    text += line;
  }
  for (const Event& event : events_) {
    std::snprintf(
        line, sizeof line,
        R"({"name":"%s","cat":"%s","ph":"X","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"args":{"stage":%d,"index":%lld}})"
        ",\n",
        toString(event.action).c_str(), categoryOf(event.action), rank, static_cast<int>(rowOf(event.action)),
        (event.begin - origin) * 1e6, (event.end - event.begin) * 1e6, event.action.stage,
        static_cast<long long>(event.action.index));
    text += line;
  }
  return writeAtomically(partOf(path, rank), text);
}

Status Trace::join(const std::string& path, int ranks) {
  std::string all = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (int rank = 0; rank < ranks; ++rank) {
    std::string part;
    if (Status status = readText(partOf(path, rank), part, Exit::cannotWrite); !status) return status;
    all += part;
  }
  all.resize(all.size() - 2); // the last comma
  all += "\n]}\n";
  if (Status status = writeAtomically(path, all); !status) return status;
  std::error_code ignored;
  for (int rank = 0; rank < ranks; ++rank) std::filesystem::remove(partOf(path, rank), ignored);
  return {};
}

} // namespace pdcrt
