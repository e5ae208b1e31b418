// Whether somebody can have a slot for a while and those who are booked find one soon after their starts all the same, as a rule.
//
// Promises go by slots: what is booked in one follows what runs there, at the latest. Plans do not: a client that is there begins in the first
// slot that suits it. Where steps are quicker than planned, slots come free before what is booked in them, and would rest until then; so they are
// lent, as far as others come free in time.
#pragma once

#include <functional>

#include "deadline_booking.hpp"

namespace zl::deadline {

inline constexpr Ns kSoonShare = 8;  // of a service: so long its client may be held, as a rule, for who was not booked before it

// When slots come free, as a rule, if each who is booked takes the first one.
class Turns {
 public:
  explicit Turns(std::vector<Ns> free_ns) : free_ns_(std::move(free_ns)) { std::make_heap(free_ns_.begin(), free_ns_.end(), std::greater<>()); }

  // Somebody has the slot that is free first, until then.
  void take(Ns until_ns) {
    std::pop_heap(free_ns_.begin(), free_ns_.end(), std::greater<>());
    free_ns_.back() = until_ns;
    std::push_heap(free_ns_.begin(), free_ns_.end(), std::greater<>());
  }

  // How long its client is held.
  Ns begin(const Booking& booking) {
    const Ns begun_ns = std::max(booking.start_ns, free_ns_.front());
    take(begun_ns + booking.typical_ns);
    return begun_ns - booking.start_ns;
  }

 private:
  std::vector<Ns> free_ns_;  // a heap: the first one is free first
};

// Whether one of the slots that are free at `free_ns` can be taken until `until_ns`: nobody whose start is before `turn_ns` waits for that.
inline bool is_spare(const std::vector<Ns>& free_ns, Ns until_ns, const Booked& booked, Ns turn_ns) {
  if (free_ns.empty()) return booked.empty();
  Turns without(free_ns), with(free_ns);
  with.take(until_ns);
  for (const Held& booking : booked) {
    if (booking->start_ns >= turn_ns) break;
    const Ns held_ns = with.begin(*booking);
    if (held_ns > std::max(without.begin(*booking), booking->typical_ns / kSoonShare)) return false;
  }
  return true;
}

}  // namespace zl::deadline
