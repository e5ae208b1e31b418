// How many of an engine's threads work. Pure: no clock, no threads.
//
// Threads that meet at barriers wait for whichever has no core. Where other programs keep the cores busy, all together can get less done
// than fewer would. What gets done is time that threads had on cores, over the time that passed: at most as many cores as there are
// threads. That says alone whether fewer can be better: threads that had less than `n` cores may do worse than `n` would. Which is better
// is found by trying, for one stretch of 0.1 s, once a second: what the work of fewer says of the cores is not enough. More must be
// clearly better, since threads that sleep for each other take more of the cores for the same work.
#pragma once

#include <cstdint>

namespace zl {

class Crew {
 public:
  enum class Phase { kSteady, kTryingFewer, kTryingMore };

  explicit Crew(int most) : most_(most), threads_(most), steady_(most) {}

  int most() const { return most_; }
  int threads() const { return threads_; }  // of the coming stretch
  int steady() const { return steady_; }    // threads() but for trials
  double cores() const { return cores_; }   // that the last stretch of these had
  Phase phase() const { return phase_; }

  // A stretch of `wall_ns` has ended at `now_ns`, in which the threads had cores for `worked_ns` in all.
  //
  //   phase          what it saw                                               next
  //   steady         more threads have not been tried for a second             trying more: all, and one more, in turns
  //                  fewer could have kFewer times the cores, so likewise      trying fewer: one, two, four ... fewer
  //                  else                                                      steady
  //   trying fewer   kFewer times the cores of before                          steady, with these
  //   trying more    kMore times the cores of before                           steady, with these
  //   trying either  else                                                      steady, as before
  void look(int64_t now_ns, int64_t wall_ns, int64_t worked_ns) {
    if (wall_ns <= 0) return;
    const double cores = double(worked_ns) / double(wall_ns);
    if (phase_ == Phase::kSteady) {
      cores_ = cores;
      if (steady_ < most_ && now_ns >= more_ns_) try_more();
      else if (now_ns >= fewer_ns_) try_fewer(now_ns);
      return;
    }
    const bool better = cores > cores_ * (phase_ == Phase::kTryingFewer ? kFewer : kMore);
    if (better) {
      cores_ = cores;
      steady_ = threads_;
    }
    if (better || phase_ == Phase::kTryingMore) more_ns_ = now_ns + kEveryNs;
    if (phase_ == Phase::kTryingFewer) step_ = better ? 1 : 2 * step_;
    begin(Phase::kSteady, steady_);
  }

 private:
  static constexpr double kFewer = 1.05, kMore = 1.15;
  static constexpr int64_t kEveryNs = 1000000000;

  void begin(Phase phase, int threads) {
    phase_ = phase;
    threads_ = threads;
  }

  void try_more() {
    all_ = !all_;
    begin(Phase::kTryingMore, all_ ? most_ : steady_ + 1);
  }

  void try_fewer(int64_t now_ns) {
    const int fewer = steady_ - step_;
    if (fewer >= 1 && cores_ * kFewer < fewer) return begin(Phase::kTryingFewer, fewer);
    if (step_ > 1) fewer_ns_ = now_ns + kEveryNs;
    step_ = 1;
  }

  const int most_;
  int threads_, steady_;
  Phase phase_ = Phase::kSteady;
  int step_ = 1;      // by which fewer are tried next
  bool all_ = false;  // whether all were tried last, not only one more
  double cores_ = 0.0;
  int64_t more_ns_ = 0, fewer_ns_ = 0;  // not to be tried before
};

}  // namespace zl
