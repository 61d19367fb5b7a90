#include "ProfilingProgress.h"

#include <cstdio>
#include <unistd.h>

using namespace pdc;

ProfilingProgress::ProfilingProgress(Diagnostics& diags)
    : diags_(diags), terminal_(::isatty(STDERR_FILENO) == 1), begin_(std::chrono::steady_clock::now()) {
  if (!terminal_) {
    diags_.remark({}).help("--profile=analytic estimates instead") << "the model is profiled, which takes a while";
    return;
  }
  what_ = "begins";
  line_ = std::thread([this] { show(); });
}

ProfilingProgress::~ProfilingProgress() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (line_.joinable()) line_.join();
}

double ProfilingProgress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

void ProfilingProgress::show() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    std::fprintf(stderr, "\rprofiling: %s, %.0f s\x1b[K", what_.c_str(), seconds());
    std::fflush(stderr);
    changed_.wait_for(lock, std::chrono::seconds(1));
  }
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

void ProfilingProgress::step(const std::string& what) {
  {
    const std::lock_guard lock(mutex_);
    what_ = what;
  }
  changed_.notify_all();
}

void ProfilingProgress::done() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (line_.joinable()) line_.join();
  char text[64];
  std::snprintf(text, sizeof text, "%.0f s", seconds());
  diags_.remark({}) << "the model was profiled in " << text;
}
