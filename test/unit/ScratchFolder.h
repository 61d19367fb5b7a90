// A folder below the tests' own, which is removed with the object. Files in it are not synced: what syncs is a matter
// of the disk below, not of this machine's.
#pragma once

#include "pdcrt/WriteFile.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

class ScratchFolder {
public:
  ScratchFolder() {
    std::string pattern = testing::TempDir() + "pdcrt-XXXXXX";
    path = ::mkdtemp(pattern.data());
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string path;

private:
  inline static const bool syncsNothing_ = [] {
    pdcrt::fileCalls.fsync = [](int) { return 0; };
    return true;
  }();
};
