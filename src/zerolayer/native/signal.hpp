// A number that threads wait for: whoever waits spins for a while, then sleeps in the kernel.
//
// Neither std::atomic::wait nor a loop of sched_yield will do: both yield, and Linux takes from who yields the rest of its slice, and with
// it its share of a core that another program wants. Who sleeps keeps its share, and is put back at once when it is woken.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace zl {

class Signal {
 public:
  uint32_t read() const { return word_.load(std::memory_order_acquire) & ~kAsleep; }

  // By one thread at a time.
  void raise() {
    const uint32_t next = read() + 2;
    if (word_.exchange(next, std::memory_order_acq_rel) & kAsleep) futex(FUTEX_WAKE_PRIVATE, INT_MAX);
  }

  // Until it is not `seen` any more, or so often. Returns how often.
  int spin(uint32_t seen, int most) const {
    int spins = 0;
    for (; spins < most && read() == seen; spins++) pause();
    return spins;
  }

  // Until it is not `seen` any more.
  void sleep(uint32_t seen) {
    while (read() == seen) {
      uint32_t awake = seen;  // or somebody else sleeps already
      if (word_.compare_exchange_strong(awake, seen | kAsleep, std::memory_order_acq_rel) || awake == (seen | kAsleep))
        futex(FUTEX_WAIT_PRIVATE, seen | kAsleep);
    }
  }

  static void pause() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
  }

 private:
  static constexpr uint32_t kAsleep = 1;

  // Errors (the number has changed, a signal came) are for the caller's loop to find.
  void futex(int operation, uint32_t value) {
    static_assert(sizeof word_ == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word_), operation, value, nullptr, nullptr, 0);
  }

  std::atomic<uint32_t> word_{0};  // the number in twos, which wraps around; the lowest bit: somebody sleeps
};

}  // namespace zl
