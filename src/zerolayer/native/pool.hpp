// The threads of one engine: they spin inside a step, sleep between steps, and meet at barriers.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

namespace zl {

class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();
  int threads() const { return threads_; }

  // Keeps each worker (all threads but the caller's) on a core of its own. 0, or the system's error number.
  int pin(const std::vector<int>& cores);

  // Calls work(context, thread) on every thread, the caller being thread 0; returns when all have returned.
  using Work = void (*)(void* context, int thread);
  void run(Work work, void* context);

  // Every thread of a run() must call it equally often.
  void barrier();

 private:
  void serve(int thread);

  const int threads_;
  Work work_ = nullptr;
  void* context_ = nullptr;
  bool stopping_ = false;
  alignas(128) std::atomic<unsigned> epoch_{0};     // run() raises it; workers sleep on it
  alignas(128) std::atomic<int> arrived_{0};   // threads at the barrier
  alignas(128) std::atomic<unsigned> barriers_{0};  // barriers passed; wraps around within days, which is why it is unsigned
  std::vector<std::thread> workers_;
};

}  // namespace zl
