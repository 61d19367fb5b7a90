// What the compute thread of a rank hands to its communication thread, and waits for.
#pragma once

#include "RunObserver.h"
#include "pdcrt/Status.h"
#include "transport/Transport.h"

namespace pdcrt {

class Posting {
public:
  /// `observer` may be null. All outlive the object.
  Posting(Communicator& communicator, RunObserver* observer) : communicator_(communicator), observer_(observer) {}

  /// The stream of the compute thread, once it is open.
  void use(Stream& q) { stream_ = &q; }
  Stream& stream() const { return *stream_; }
  Transport& transport() const { return communicator_.transport(); }

  /// Hands work to the communication thread: it may touch memory when the stream has come here.
  void post(Work& work) {
    work.ready.record(*stream_);
    communicator_.post(work);
  }
  /// Sleeps until the work is complete: what is put into the stream from now on begins after it. False: another rank
  /// has given up.
  bool await(const Work& work) {
    if (!communicator_.wait(work)) return false;
    work.precede(*stream_);
    return true;
  }
  /// await() for `action`, of which the observer is told if it is a wait.
  Status waitFor(const Action& action, const Work& work) {
    const double begin = now();
    if (!await(work)) return failure();
    tellWait(action, begin, work.postedAt, work.completedAt);
    return {};
  }
  Status waitFor(const Work& work) { return waitFor({}, work); }
  /// Why a wait has ended before its work.
  Status failure() const { return transport().failure(); }

  void tellWait(const Action& action, double begin, double posted, double completed) {
    if (!observer_ || !action.wait) return;
    observer_->acted(action, begin, now());
    observer_->transferred(action, posted, completed);
  }

private:
  Communicator& communicator_;
  RunObserver* observer_;
  Stream* stream_ = nullptr;
};

/// What is said where a schedule uses a buffer again too early.
inline Status busyBuffer(const Action& action) {
  return {Exit::invalid, "action " + toString(action) + " needs a buffer whose last transfer is not complete",
          "await it earlier in schedule.txt"};
}

} // namespace pdcrt
