#include "pool.hpp"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace zl {
namespace {

// At a barrier: for about 200 us, far longer than threads on cores of their own wait for each other, or for 2 us.
constexpr int kSpinsAtBarrier = 12000, kFewSpins = 100;

double time_spin() {
  constexpr int kSpins = 500;
  auto shortest = std::chrono::steady_clock::duration::max();
  for (int turn = 0; turn < 5; turn++) {
    const auto begun = std::chrono::steady_clock::now();
    for (int spin = 0; spin < kSpins; spin++) Signal::pause();
    shortest = std::min(shortest, std::chrono::steady_clock::now() - begun);
  }
  return std::chrono::duration<double, std::nano>(shortest).count() / kSpins;
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

Pool::Pool(int threads)
    : size_(threads), spin_ns_(time_spin()), threads_(threads), waiting_(threads), workers_(threads - 1) {
  sched_getaffinity(0, sizeof anywhere_, &anywhere_);
  for (int t = 1; t < threads; t++) {
    Worker& worker = workers_[t - 1];
    worker.thread = std::thread([this, &worker, t] { serve(&worker, t); });
    pthread_getcpuclockid(worker.thread.native_handle(), &worker.cpu_clock);
  }
}

Pool::~Pool() {
  stopping_ = true;
  for (Worker& worker : workers_) worker.go.raise();
  for (Worker& worker : workers_) worker.thread.join();
}

int Pool::pin(const std::vector<int>& cores) {
  if (cores.size() != workers_.size()) return EINVAL;
  for (const int core : cores)
    if (core < 0 || core >= CPU_SETSIZE) return EINVAL;
  for (size_t i = 0; i < cores.size(); i++) {
    Worker& worker = workers_[i];
    CPU_ZERO(&worker.home);
    CPU_SET(cores[i], &worker.home);
    if (const int error = pthread_setaffinity_np(worker.thread.native_handle(), sizeof worker.home, &worker.home)) return error;
  }
  CPU_ZERO(&homes_);
  for (const Worker& worker : workers_) CPU_OR(&homes_, &homes_, &worker.home);
  pinned_ = at_home_ = true;
  return 0;
}

void Pool::keep_apart() {
  if (apart_ || !at_home_ || sched_getaffinity(0, sizeof before_, &before_)) return;
  cpu_set_t taken, others;
  CPU_AND(&taken, &before_, &homes_);
  CPU_XOR(&others, &before_, &taken);
  apart_ = CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0;
}

void Pool::let_go() {
  if (apart_) sched_setaffinity(0, sizeof before_, &before_);
  apart_ = false;
}

void Pool::place(int threads) {
  if (!pinned_ || at_home_ == (threads == size_)) return;
  at_home_ = threads == size_;
  for (Worker& worker : workers_)
    pthread_setaffinity_np(worker.thread.native_handle(), sizeof(cpu_set_t), at_home_ ? &worker.home : &anywhere_);
}

int64_t Pool::workers_cpu_ns() const {
  int64_t sum = 0;
  for (const Worker& worker : workers_) {
    timespec time{};
    clock_gettime(worker.cpu_clock, &time);
    sum += time.tv_sec * int64_t{1000000000} + time.tv_nsec;
  }
  return sum;
}

int64_t Pool::spun_ns() const {
  int64_t spins = 0;
  for (const Waiting& one : waiting_) spins += one.spins;
  return int64_t(double(spins) * spin_ns_);
}

void Pool::spin(int64_t slept_ns) {
  for (Waiting& one : waiting_) one.spins_until_ns = one.slept_ns + slept_ns;
}

int64_t Pool::slept_ns() const {
  int64_t sum = 0;
  for (const Waiting& one : waiting_) sum += one.slept_ns;
  return sum;
}

void Pool::run(Work work, void* context, int threads) {
  threads_ = threads;
  work_ = work;
  context_ = context;
  for (int t = 1; t < threads; t++) workers_[t - 1].go.raise();
  {
    [[maybe_unused]] const DefaultFloatMode mode;
    work(context, 0);
  }
  barrier(0);
}

void Pool::serve(Worker* worker, int thread) {
  for (uint32_t seen = 0;; seen += 2) {
    const int spins = worker->go.spin(seen, spins_for_run_.load(std::memory_order_relaxed));
    worker->go.sleep(seen);
    waiting_[thread].spins += spins;  // not before a run has begun: between runs they are the caller's to read
    if (stopping_) return;
    {
      [[maybe_unused]] const DefaultFloatMode mode;
      work_(context_, thread);
    }
    arrive();
  }
}

// Whether all have arrived. Who is last may not look at anything of this run afterwards: the next one may have begun.
bool Pool::arrive() {
  const int all = threads_;
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < all) return false;
  arrived_.store(0, std::memory_order_relaxed);
  passed_.raise();
  return true;
}

void Pool::barrier(int thread) {
  if (threads_ == 1) return;
  const uint32_t seen = passed_.read();
  if (arrive()) return;
  Waiting& own = waiting_[thread];
  own.spins += passed_.spin(seen, own.slept_ns < own.spins_until_ns ? kSpinsAtBarrier : kFewSpins);
  if (passed_.read() != seen) return;
  const auto begun = std::chrono::steady_clock::now();
  passed_.sleep(seen);
  own.slept_ns += std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begun).count();
}

}  // namespace zl
