// Whether threads that wait for each other spin or sleep at once. Pure: no clock, no threads.
//
// On cores of their own threads arrive at a barrier within microseconds of each other, and whoever sleeps for that long costs more than it
// saves. Where another program shares the core of one, the others would spin for milliseconds, on their own share of their cores, and lack
// it when it is their turn. Sleepers keep their share: they are put back as soon as they are woken, and threads that sleep and wake
// together come to have their cores at the same time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace zl {

class Patience {
 public:
  static constexpr int64_t kWindowNs = 20000000;  // what is looked at, at least

  bool spins() const { return spins_; }
  // How long a thread may have slept in the coming window before it spins no more in it.
  int64_t sleep_ns() const { return spins_ ? kWindowNs / 4 : 0; }
  // Whether other programs are on the threads' cores, as far as is known while spinning is tried.
  bool crowded() const { return !spins_ || pause_ns_ > kLeastNs; }

  // A window of `wall_ns` has ended at `now_ns`, in which `threads` slept for `slept_ns` in all, after they had spun if they do.
  //
  //   they    what it saw                                                next
  //   spin    they slept for over kTooMuch of the window, for the        sleep at once
  //           tenth time in a row, or other programs are known of:
  //           a hypervisor, too, takes a core now and then
  //   sleep   so they did for 0.1 s, twice as long each time             spin
  //           that spinning was no good, up to 0.8 s
  void look(int64_t now_ns, int64_t wall_ns, int64_t slept_ns, int threads) {
    if (spins_ && double(slept_ns) > kTooMuch * double(threads) * double(wall_ns)) {
      if (++in_a_row_ < kInARow && pause_ns_ == kLeastNs) return;
      in_a_row_ = 0;
      spins_ = false;
      until_ns_ = now_ns + pause_ns_;
      pause_ns_ = std::min(2 * pause_ns_, kMostNs);
    } else if (spins_) {
      in_a_row_ = 0;
      pause_ns_ = kLeastNs;
    } else if (now_ns >= until_ns_) {
      spins_ = true;
    }
  }

 private:
  static constexpr double kTooMuch = 0.25;
  static constexpr int kInARow = 10;
  static constexpr int64_t kLeastNs = 100000000, kMostNs = 800000000;

  bool spins_ = true;
  int in_a_row_ = 0;  // windows in which spinning was no good
  int64_t until_ns_ = 0, pause_ns_ = kLeastNs;
};

}  // namespace zl
