// Shares tasks out over XLA's own threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "xla/ffi/api/ffi.h"

namespace fff {

// Runs task(0) ... task(count - 1) and returns when all are done.
//
// The caller works too and never waits for a thread to become free, only for tasks that a thread
// has already begun: handlers that run at once in one pool cannot lock each other up.
template <class Task>
void parallel_for(xla::ffi::ThreadPool& pool, int64_t count, const Task& task) {
  const int64_t helpers = std::min<int64_t>(count, pool.num_threads()) - 1;
  if (helpers <= 0) {
    for (int64_t i = 0; i < count; ++i) task(i);
    return;
  }
  struct Shared {
    std::atomic<int64_t> next{0}, done{0};
    std::mutex mutex;
    std::condition_variable all_done;
  };
  auto shared = std::make_shared<Shared>();
  // A helper that starts late finds nothing to do and does not touch `task`, which may be gone.
  auto work = [shared, count, &task] {
    for (int64_t i; (i = shared->next.fetch_add(1)) < count;) {
      task(i);
      if (shared->done.fetch_add(1) + 1 == count) {
        std::lock_guard<std::mutex> lock(shared->mutex);
        shared->all_done.notify_all();
      }
    }
  };
  for (int64_t i = 0; i < helpers; ++i) {
    auto copy = work;
    pool.Schedule(std::move(copy));
  }
  work();
  std::unique_lock<std::mutex> lock(shared->mutex);
  shared->all_done.wait(lock, [&] { return shared->done.load() == count; });
}

}  // namespace fff
