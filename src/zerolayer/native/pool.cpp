#include "pool.hpp"

#include <cerrno>
#include <pthread.h>
#include <sched.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace zl {
namespace {

// A worker spins this long for the next step before it sleeps: longer than the gap between two steps, far shorter than a step, so an
// idle server does not spin.
constexpr int kSpinsBeforeSleep = 2000;
// A barrier is passed within microseconds unless another process holds the core; then giving the core away is what helps.
constexpr int kSpinsBeforeYield = 4000;

inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// The caller's floating-point mode (Python, another library) must not change a bit of a result.
class DefaultFloatMode {
 public:
#if defined(__x86_64__)
  DefaultFloatMode() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~DefaultFloatMode() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#endif
};

}  // namespace

Pool::Pool(int threads) : threads_(threads) {
  for (int t = 1; t < threads; t++) workers_.emplace_back([this, t] { serve(t); });
}

Pool::~Pool() {
  stopping_ = true;
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

int Pool::pin(const std::vector<int>& cores) {
  if (cores.size() != workers_.size()) return EINVAL;
  for (size_t i = 0; i < cores.size(); i++) {
    if (cores[i] < 0 || cores[i] >= CPU_SETSIZE) return EINVAL;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cores[i], &set);
    if (const int error = pthread_setaffinity_np(workers_[i].native_handle(), sizeof set, &set)) return error;
  }
  return 0;
}

void Pool::run(Work work, void* context) {
  work_ = work;
  context_ = context;
  if (threads_ > 1) {
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
  }
  {
    [[maybe_unused]] const DefaultFloatMode mode;
    work(context, 0);
  }
  barrier();
}

void Pool::serve(int thread) {
  for (unsigned seen = 0;; seen++) {
    for (int spins = 0; epoch_.load(std::memory_order_acquire) == seen; spins++) {
      if (spins < kSpinsBeforeSleep) pause();
      else epoch_.wait(seen, std::memory_order_acquire);
    }
    if (stopping_) return;
    {
      [[maybe_unused]] const DefaultFloatMode mode;
      work_(context_, thread);
    }
    barrier();
  }
}

void Pool::barrier() {
  if (threads_ == 1) return;
  const unsigned passed = barriers_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    barriers_.store(passed + 1, std::memory_order_release);
    return;
  }
  for (int spins = 0; barriers_.load(std::memory_order_acquire) == passed; spins++) {
    if (spins < kSpinsBeforeYield) pause();
    else sched_yield();
  }
}

}  // namespace zl
