// When a thread of a step offers its core to whoever waits for it (sched_yield(2)). Pure: no clock, no threads.
//
// The event loop wants a core for a fraction of a millisecond and cannot take one. Linux (EEVDF) gives it at once only to a waker who has
// not had more than his share of late and whose deadline is the earliest, and takes it away again at the first tick at which that is no
// longer so; each time he may wait for the next tick, up to 4 ms. So a thread that computes offers its core several times a millisecond,
// and more often while the loop has not heard the bell of a report. Where nobody waits an offer takes half a microsecond.
//
// Who yields loses the rest of his slice, and another program that gets the core keeps it for all of its own. A thread that was away for
// long has met one: it offers nothing for many times as long, except to a loop that has not heard the bell for a while.
#pragma once

#include <cstdint>

namespace zl {

class Offers {
 public:
  // Whether it is worth while to find out whether there is a bell to be heard.
  bool looks(int64_t now_ns) const { return now_ns - looked_ns_ >= kLookNs; }

  // Whether to yield now. `unheard_ns`: how long the bell has not been heard; -1: there is none to be heard.
  bool due(int64_t now_ns, int64_t unheard_ns) {
    looked_ns_ = now_ns;
    if (now_ns < rests_until_ns_) return unheard_ns >= kPatienceNs;
    return unheard_ns >= 0 || now_ns - back_ns_ >= kEveryNs;
  }

  // It yielded and got the core back.
  void made(int64_t began_ns, int64_t ended_ns) {
    const int64_t away_ns = ended_ns - began_ns;
    back_ns_ = ended_ns;
    if (away_ns >= kLongNs) rests_until_ns_ = ended_ns + kRest * away_ns;
  }

 private:
  static constexpr int64_t kLookNs = 50'000, kEveryNs = 250'000;
  static constexpr int64_t kPatienceNs = 150'000;  // within which a loop that has a core has usually heard the bell
  static constexpr int64_t kLongNs = 2'000'000;    // for longer the loop hardly ever works without a break
  static constexpr int64_t kRest = 16;             // times as long as it was away

  int64_t looked_ns_ = 0;
  int64_t back_ns_ = 0;  // from the last offer
  int64_t rests_until_ns_ = 0;
};

}  // namespace zl
