#include "shift.hpp"

#include <time.h>

#include <algorithm>

namespace zl {
namespace {

constexpr int64_t kStretchNs = 50000000;   // a dozen turns of programs that share a core, and 5 % of the time between two trials
constexpr int64_t kStaleNs = 1000000000;   // nothing ran for so long: the stretch before says nothing any more

int64_t read(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time.tv_sec * int64_t{1000000000} + time.tv_nsec;
}

}  // namespace

void Shift::begin() {
  if (pool_.size() == 1) return;
  const int64_t now = read(CLOCK_MONOTONIC), before = stage_ns_;
  stage_ns_ = now;
  caller_ns_ = read(CLOCK_THREAD_CPUTIME_ID);
  if (now - before > kStaleNs) start_stretch();
}

void Shift::end() {
  if (pool_.size() > 1) worked_ns_ += read(CLOCK_THREAD_CPUTIME_ID) - caller_ns_;
}

void Shift::stage_ended() {
  if (pool_.size() == 1) return;
  const int64_t now = read(CLOCK_MONOTONIC);
  wall_ns_ += now - stage_ns_;
  stage_ns_ = now;
  if (wall_ns_ < kStretchNs) return;
  const int64_t caller = read(CLOCK_THREAD_CPUTIME_ID);
  worked_ns_ += caller - caller_ns_;
  caller_ns_ = caller;
  crew_.look(now, wall_ns_, worked_ns_ + pool_.workers_cpu_ns() - workers_ns_);
  pool_.place(crew_.threads());
  threads_now_.store(crew_.steady(), std::memory_order_relaxed);
  cores_now_.store(float(crew_.cores()), std::memory_order_relaxed);
  start_stretch();
}

void Shift::start_stretch() {
  wall_ns_ = worked_ns_ = 0;
  workers_ns_ = pool_.workers_cpu_ns();
}

int Shift::threads() {
  if (orders_.empty()) return crew_.threads();
  order_ = (order_ + 1) % orders_.size();
  return std::clamp(orders_[order_], 1, pool_.size());
}

}  // namespace zl
