#include "shift.hpp"

#include <time.h>

#include <algorithm>

namespace zl {
namespace {

constexpr int64_t kStretchNs = 100000000;  // some dozen turns of programs that share a core
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
  if (now - before > kStaleNs) {
    start_stretch();
    start_window();
  }
  if (patience_.crowded() && crew_.threads() > 1) pool_.keep_apart();
  pool_.stay_awake(!patience_.crowded());
}

void Shift::end() {
  if (pool_.size() == 1) return;
  worked_ns_ += read(CLOCK_THREAD_CPUTIME_ID) - caller_ns_;
  pool_.let_go();
}

void Shift::stage_ended() {
  if (pool_.size() == 1) return;
  const int64_t now = read(CLOCK_MONOTONIC), passed = now - stage_ns_;
  stage_ns_ = now;
  wall_ns_ += passed;
  if (pool_.threads() > 1 && (window_.wall_ns += passed) >= Patience::kWindowNs) look_at_waits(now);
  if (wall_ns_ >= kStretchNs) look_at_work(now);
}

void Shift::look_at_waits(int64_t now) {
  const bool spun = patience_.spins();
  patience_.look(now, window_.wall_ns, pool_.slept_ns() - window_.slept_ns, pool_.threads());
  start_window();
  crowded_.store(patience_.crowded(), std::memory_order_relaxed);
  if (patience_.crowded()) pool_.keep_apart();
  if (patience_.spins() != spun) start_stretch();  // what was seen before was another way to wait
}

void Shift::start_window() {
  window_ = {0, pool_.slept_ns()};
  pool_.spin(patience_.sleep_ns());
}

void Shift::look_at_work(int64_t now) {
  const int64_t caller = read(CLOCK_THREAD_CPUTIME_ID) - caller_ns_;
  crew_.look(now, wall_ns_, worked_ns_ + caller + pool_.workers_cpu_ns() - workers_ns_ - (pool_.spun_ns() - spun_ns_));
  pool_.place(crew_.threads());
  threads_now_.store(crew_.steady(), std::memory_order_relaxed);
  cores_now_.store(float(crew_.cores()), std::memory_order_relaxed);
  start_stretch();
}

void Shift::start_stretch() {
  caller_ns_ = read(CLOCK_THREAD_CPUTIME_ID);
  wall_ns_ = worked_ns_ = 0;
  workers_ns_ = pool_.workers_cpu_ns();
  spun_ns_ = pool_.spun_ns();
}

int Shift::threads() {
  if (orders_.empty()) return crew_.threads();
  order_ = (order_ + 1) % orders_.size();
  return std::clamp(orders_[order_], 1, pool_.size());
}

}  // namespace zl
