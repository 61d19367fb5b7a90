// The communication thread: takes posted work from a queue, and polls what is under way.
#include "Transport.h"
#include "pdcrt/Threads.h"

#include <algorithm>
#include <csignal>
#include <utility>

namespace pdcrt {

Communicator::Communicator(Transport& transport) : transport_(transport) {
  // Signals are for the thread that runs the stages.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Communicator::~Communicator() {
  stop();
}

void Communicator::stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  transport_.wake();
  thread_.join();
}

void Communicator::post(Work& work) {
  work.posted_ = true;
  work.complete_.store(false, std::memory_order_relaxed);
  work.postedAt = now();
  work.next_ = nullptr;
  {
    std::lock_guard lock(mutex_);
    (last_ ? last_->next_ : first_) = &work;
    last_ = &work;
  }
  transport_.wake();
}

bool Communicator::wait(const Work& work) {
  return waitUntil([&] { return work.complete(); });
}

void Communicator::run() {
  takeTurnsOf(shortTurn); // once woken it runs at once, not when a kernel's turn of milliseconds is over
  transport_.open();
  // In the order of posting; those that go first in each round, and all others.
  std::vector<Work*> urgent, active;
  urgent.reserve(1024);
  active.reserve(1024);
  std::exception_ptr thrown;
  int idle = 0;
  while (true) {
    Work* posted = nullptr;
    bool stopping = false;
    {
      std::lock_guard lock(mutex_);
      posted = std::exchange(first_, nullptr);
      last_ = nullptr;
      stopping = stopping_;
    }
    bool moved = posted != nullptr;
    for (; posted; posted = posted->next_) (posted->urgent ? urgent : active).push_back(posted);

    transport_.poll();
    const std::int64_t turn = transport_.gate().next();
    // What completes now is told at once, after the round: one wake-up for all.
    const std::size_t before = urgent.size() + active.size();
    const auto isOver = [&](Work* work) {
      try {
        if (thrown || !work->advance(transport_)) return false;
      } catch (...) { // a sum on the device; whoever waits is told
        thrown = std::current_exception();
        return false;
      }
      work->completedAt = now();
      // The owner may reuse the work from here on, but sees it only after the lock below where it waits.
      work->complete_.store(true, std::memory_order_release);
      return true;
    };
    std::erase_if(urgent, isOver);
    std::erase_if(active, isOver);
    const bool aborted = transport_.aborted() || thrown;
    if (urgent.size() + active.size() < before || aborted) {
      moved = true;
      {
        std::lock_guard lock(mutex_);
        aborted_ = aborted;
        thrown_ = thrown;
      }
      completion_.notify_all();
    }
    if (stopping || aborted) {
      for (std::vector<Work*>* works : {&urgent, &active}) {
        for (Work* work : *works) work->cancel(transport_);
        works->clear();
      }
      if (stopping) break;
    }
    // What was looked at before may start now.
    moved = transport_.looksAgain() || moved || transport_.gate().next() != turn;
    idle = moved ? 0 : idle + 1;
    if (moved && !aborted) continue;
    dozing_ = true;
    const bool awaited = awaited_; // who begins to wait from now on sees that this thread sleeps, and wakes it
    const auto limit = aborted                            ? std::chrono::nanoseconds(-1)
                       : urgent.empty() && active.empty() ? transport_.vigil()
                                                          : transport_.patience(idle, awaited);
    dozing_ = !awaited && limit > std::chrono::nanoseconds::zero();
    transport_.sleep(limit);
    // Who shares the core may have what this thread looks for.
    if (limit == std::chrono::nanoseconds::zero()) std::this_thread::yield();
    dozing_ = false;
  }
  transport_.close();
}

} // namespace pdcrt
