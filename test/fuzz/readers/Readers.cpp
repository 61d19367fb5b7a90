#include "Readers.h"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

using namespace pdc;

const fuzz::Reader* fuzz::findReader(const std::string& name) {
  for (const std::span<const Reader> family : {PDC_READERS})
    for (const Reader& reader : family)
      if (reader.name == name) return &reader;
  return nullptr;
}

void fuzz::fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

std::string fuzz::fileOf(const std::string& bytes) {
  static const int file = ::memfd_create("pdc-fuzz", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, 0) != 0 ||
      ::pwrite(file, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    fail("no file in memory");
  return "/proc/self/fd/" + std::to_string(file);
}
