// Gives every file of a corpus to its reader, once: replay-readers CORPUS, with a folder per reader. Without libFuzzer,
// so that what was once found is looked at again by every build.
#include "Readers.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  if (argc != 2) return std::fprintf(stderr, "replay-readers: expects a folder\n"), 2;
  int inputs = 0, readers = 0;
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(argv[1]))
    if (entry.is_directory()) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  for (const fs::path& folder : folders) {
    const pdc::fuzz::Reader* reader = pdc::fuzz::findReader(folder.filename().string());
    if (!reader) return std::fprintf(stderr, "replay-readers: no reader '%s'\n", folder.filename().c_str()), 1;
    ++readers;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      std::ifstream in(entry.path(), std::ios::binary);
      std::fprintf(stderr, "%s\n", entry.path().c_str());
      reader->target(std::string(std::istreambuf_iterator<char>(in), {}));
      ++inputs;
    }
  }
  std::printf("%d inputs of %d readers\n", inputs, readers);
  return inputs > 0 ? 0 : 1;
}
