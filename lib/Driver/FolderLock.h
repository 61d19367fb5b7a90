// One at a time in a folder, on this machine; who dies gives its lock back.
#pragma once

#include <string>

namespace pdc {

/// A lock on a folder (flock(2) on the folder itself, so that no file is left). Where locks are not supported, nobody
/// has one.
class FolderLock {
public:
  /// Does not wait.
  explicit FolderLock(const std::string& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

  bool isOthers() const { return isOthers_; }
  /// Until the other one gives it back.
  void wait();

private:
  int folder_;
  bool isOthers_ = false;
};

} // namespace pdc
