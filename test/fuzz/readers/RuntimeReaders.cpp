// What a generated program reads at its start and from its disk, and what its supervisor hears.
#include "Readers.h"

#include "pdcrt/Checkpoint.h"
#include "pdcrt/ControlLine.h"
#include "pdcrt/Machine.h"
#include "pdcrt/Npy.h"
#include "pdcrt/Safetensors.h"
#include "pdcrt/Schedule.h"
#include "pdcrt/StoredTensor.h"
#include "pdcrt/Training.h"

#include <cmath>
#include <cstdio>
#include <numeric>

using namespace pdc;

namespace {

/// Adds up all bytes, so that a span beyond its file is seen.
void touch(std::span<const std::byte> bytes) {
  const unsigned sum = std::accumulate(bytes.begin(), bytes.end(), 0u,
                                       [](unsigned s, std::byte b) { return s + static_cast<unsigned>(b); });
  asm volatile("" : : "r"(sum));
}

void npy(const std::string& bytes) {
  pdcrt::NpyFile file;
  if (file.open(fuzz::fileOf(bytes))) touch(file.values());
}

void safetensors(const std::string& bytes) {
  pdcrt::SafetensorsFile file;
  if (!file.open(fuzz::fileOf(bytes))) return;
  for (const auto& [name, record] : file.tensors()) touch(record.values);
  // As a file of a member. One alone is never all of a divided tensor.
  for (const auto& [name, record] : file.tensors()) {
    pdcrt::StoredTensor tensor;
    if (!tensor.add(file, record)) continue;
    std::vector<std::byte> made;
    if (tensor.complete()) touch(tensor.whole(made).values);
  }
  const pdcrt::SafetensorsFile* const files[] = {&file};
  std::vector<pdcrt::StoredTensor> tensors;
  (void)pdcrt::readStored(files, tensors);
}

void manifest(const std::string& text) {
  pdcrt::Manifest read;
  if (pdcrt::parseManifest(text, "fuzz", read) && pdcrt::toJson(read) != text) fuzz::fail("does not read back");
}

/// A text as it is, and with the checksum that it must have to be read on.
void manifests(const std::string& text) {
  manifest(text);
  char sum[32];
  std::snprintf(sum, sizeof sum, " \"crc32c\": \"%08x\"\n}\n", pdcrt::extended({}, std::as_bytes(std::span(text))).crc);
  manifest(text + sum);
}

void training(const std::string& text) {
  pdcrt::Training read, again;
  if (!pdcrt::parseTraining(text, "fuzz", read)) return;
  const std::string written = pdcrt::toJson(read);
  if (!pdcrt::parseTraining(written, "written", again) || pdcrt::toJson(again) != written)
    fuzz::fail("does not read back");
}

/// As a rank does at its start: reads, and executes a run of some minibatches.
void schedule(const std::string& text) {
  pdcrt::Schedule read, again;
  std::string error;
  if (!pdcrt::parseSchedule(text, read, error)) {
    if (error.empty()) fuzz::fail("refused without a reason");
    return;
  }
  const std::string written = pdcrt::toString(read);
  if (!pdcrt::parseSchedule(written, again, error) || pdcrt::toString(again) != written)
    fuzz::fail("does not read back");
  if (pdcrt::isWellFormed(read, error)) (void)pdcrt::check(read, 5);
}

void control(const std::string& bytes) {
  pdcrt::HelloLine hello;
  pdcrt::BeatLine beat;
  int code = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\n', at), bytes.size());
    const std::string line = bytes.substr(at, end - at);
    at = end + 1;
    if (pdcrt::parseHello(line, hello) && (hello.ranks.empty() || hello.process < 1)) fuzz::fail("a hello of nobody");
    if (pdcrt::parseBeat(line, beat) && (!std::isfinite(beat.milliseconds) || beat.rank < 0))
      fuzz::fail("a beat of nobody");
    if (pdcrt::parseBye(line, code) && (code < 0 || code > 255)) fuzz::fail("a code that is none");
  }
}

} // namespace

std::span<const fuzz::Reader> fuzz::runtimeReaders() {
  static const Reader readers[] = {{"npy", npy},           {"safetensors", safetensors}, {"manifest", manifests},
                                   {"training", training}, {"schedule", schedule},       {"control", control}};
  return readers;
}
