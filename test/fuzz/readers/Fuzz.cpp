// libFuzzer's entry: fuzz-readers --reader=NAME [libFuzzer's flags, which begin with one '-'] CORPUS…
#include "Readers.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

static pdc::fuzz::Target target = nullptr;

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  constexpr const char* flag = "--reader=";
  for (int i = 1; i < *count; ++i)
    if (std::strncmp((*arguments)[i], flag, std::strlen(flag)) == 0)
      if (const pdc::fuzz::Reader* reader = pdc::fuzz::findReader((*arguments)[i] + std::strlen(flag)))
        target = reader->target;
  if (target) return 0;
  std::fprintf(stderr, "fuzz-readers: --reader=NAME names no reader of test/fuzz/readers\n");
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  target(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
