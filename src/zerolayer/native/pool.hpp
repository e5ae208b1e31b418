// The threads of one engine: they meet at barriers inside a step, and sleep between steps.
#pragma once

#include <sched.h>
#include <time.h>

#include <atomic>
#include <thread>
#include <vector>

#include "signal.hpp"

namespace zl {

class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();

  // All there are, and those that take part in the present run.
  int size() const { return size_; }
  int threads() const { return threads_; }

  // Keeps each worker (all threads but the caller's) on a core of its own. 0, or the system's error number.
  int pin(const std::vector<int>& cores);

  // Calls work(context, thread) on so many threads, the caller being thread 0; returns when all have returned.
  using Work = void (*)(void* context, int thread);
  void run(Work work, void* context, int threads);
  void run(Work work, void* context) { run(work, context, size_); }

  // Every thread of a run() must call it equally often, with its number.
  void barrier(int thread);

  // From now on each thread spins at barriers before it sleeps, until it has slept for so long. Between two runs.
  void spin(int64_t slept_ns);

  // From now on workers spin for the next run for longer than two steps are usually apart, or not.
  void stay_awake(bool awake) { spins_for_run_.store(awake ? kSpinsThroughBorder : kSpinsForRun, std::memory_order_relaxed); }

  // Between two runs: the time that the workers have had on cores so far, and that all threads have spent spinning, and asleep at barriers.
  int64_t workers_cpu_ns() const;
  int64_t spun_ns() const;
  int64_t slept_ns() const;

  // Keeps the calling thread off the cores of the workers, where these are pinned, until it is let go: whoever is woken by a thread on a
  // busy core is often put there too, and then two threads of a step share one core.
  void keep_apart();
  void let_go();

  // So many threads will run from now on. Fewer than all are not kept on cores of their own: one of those cores may be another program's.
  void place(int threads);

 private:
  // A worker spins this long for the next run before it sleeps: some 30 us, for stages, or 400 us, as the border between two steps takes 100
  // to 300. Both are far shorter than a step, so an idle server does not spin.
  //
  // A core on which nobody runs is halted, and a virtual machine may get it back from its host milliseconds late: then not only the next
  // step begins late, but the loop is woken late as well, which the kernel puts on the core that is idle.
  static constexpr int kSpinsForRun = 2000, kSpinsThroughBorder = 24000;

  struct alignas(128) Waiting {
    int64_t spins = 0, slept_ns = 0;  // so far; slept at barriers
    int64_t spins_until_ns = 0;       // it has slept so much
  };
  struct alignas(128) Worker {
    Signal go;  // raised once for each run that it takes part in
    std::thread thread;
    clockid_t cpu_clock;
    cpu_set_t home;  // the core that it is pinned to
  };

  void serve(Worker* worker, int thread);
  bool arrive();

  const int size_;
  const double spin_ns_;  // one spin
  int threads_;
  Work work_ = nullptr;
  void* context_ = nullptr;
  bool stopping_ = false;
  std::atomic<int> spins_for_run_{kSpinsForRun};
  cpu_set_t anywhere_{};  // what the process may use
  cpu_set_t homes_{};     // of all workers
  cpu_set_t before_{};    // what the caller might, before it was kept apart
  bool pinned_ = false, at_home_ = false, apart_ = false;
  alignas(128) std::atomic<int> arrived_{0};  // threads at the barrier
  alignas(128) Signal passed_;                // raised as the barrier is passed
  std::vector<Waiting> waiting_;              // by thread
  std::vector<Worker> workers_;
};

}  // namespace zl
