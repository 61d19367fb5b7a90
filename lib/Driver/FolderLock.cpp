#include "FolderLock.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

using namespace pdc;

FolderLock::FolderLock(const std::string& folder)
    : folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  isOthers_ = folder_ >= 0 && ::flock(folder_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

FolderLock::~FolderLock() {
  if (folder_ >= 0) ::close(folder_);
}

void FolderLock::wait() {
  while (isOthers_ && ::flock(folder_, LOCK_EX) != 0)
    if (errno != EINTR) break;
  isOthers_ = false;
}
