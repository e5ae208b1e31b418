// How a pool runs the stages of steps: on how many threads (crew.hpp), which spin for each other or do not (patience.hpp); and what these
// decisions rest on.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "crew.hpp"
#include "patience.hpp"
#include "pool.hpp"

namespace zl {

// One thread calls, but for what is said otherwise. In quiet it costs a step two looks at a thread's clock, and each stage one at the time.
class Shift {
 public:
  explicit Shift(Pool* pool) : pool_(*pool), crew_(pool->size()), threads_now_(pool->size()) { start_window(); }

  // Around a step, and after each of its stages. Between two stages, all threads have returned from run().
  void begin();
  void stage_ended();
  void end();

  // How many are to run the coming stage.
  int threads();

  // For tests: the coming stages have so many threads, in turn; none: the crew decides again.
  void follow(std::vector<int> counts) { orders_ = std::move(counts); }

  // Any thread: how many work now, the cores that all of these together had of late (0: not known yet), and whether other programs share
  // these cores.
  int threads_now() const { return threads_now_.load(std::memory_order_relaxed); }
  float cores_now() const { return cores_now_.load(std::memory_order_relaxed); }
  bool crowded() const { return crowded_.load(std::memory_order_relaxed); }

 private:
  struct Window { int64_t wall_ns = 0, slept_ns = 0; };  // in steps, and what the threads had slept when it began

  void start_stretch();
  void start_window();
  void look_at_waits(int64_t now);
  void look_at_work(int64_t now);

  Pool& pool_;
  Crew crew_;
  Patience patience_;
  Window window_;  // of patience_
  std::vector<int> orders_;
  size_t order_ = 0;
  int64_t stage_ns_ = 0;                   // when the present one began
  int64_t wall_ns_ = 0;                    // of the stretch, within steps
  int64_t caller_ns_ = 0, worked_ns_ = 0;  // the caller's clock when last read, and what it says of the stretch
  int64_t workers_ns_ = 0, spun_ns_ = 0;   // the workers' clocks when it began, and what was spun
  std::atomic<int> threads_now_;
  std::atomic<float> cores_now_{0.0f};
  std::atomic<bool> crowded_{false};
};

}  // namespace zl
