// The eventfd by which the step thread wakes the event loop (model/bell.py).
#pragma once

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <chrono>
#include <cstdint>

namespace zl {

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline bool is_unheard(int bell) {
  pollfd unread{bell, POLLIN, 0};
  return poll(&unread, 1, 0) == 1 && unread.revents & POLLIN;
}

// Rings, and looks at it for as long at most. Whether it was heard. Gives way once, halfway: by then whoever was to wake up has done so,
// or waits for this core.
inline bool ring_and_wait(int bell, int64_t patience_ns) {
  const int64_t rung = now_ns();
  eventfd_write(bell, 1);
  for (bool gave_way = false; is_unheard(bell);) {
    const int64_t waited = now_ns() - rung;
    if (waited >= patience_ns) return false;
    if (waited < patience_ns / 2 || gave_way) continue;
    gave_way = true;
    sched_yield();
  }
  return true;
}

}  // namespace zl
