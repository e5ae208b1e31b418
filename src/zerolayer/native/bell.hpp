// The eventfd by which the step thread wakes the event loop (model/bell.py).
#pragma once

#include <poll.h>
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

}  // namespace zl
