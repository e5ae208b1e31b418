// What the bookings of one slot, a chain, mean for each other and for what runs. Pure functions.
#pragma once

#include "deadline_booking.hpp"

namespace zl::deadline {

inline constexpr Ns kLateNs = 5'000'000;

// When a slot must be free for what is booked in it; `follows`: after something that was booked, too.
inline Ns latest(const Chain& chain, bool follows) {
  Ns limit = kNever, needs = 0;
  for (const Booking* booking : chain) {
    limit = std::min(limit, booking->latest_ns() - needs);
    needs += booking->need_ns - (needs || follows ? booking->single_ns : 0);
  }
  return limit;
}

// Whether nobody is before it in its slot, or only who is late and can wait until it ends.
inline bool is_next(const Booking& booking, const Chain& chain, Ns now_ns) {
  Chain others;
  std::copy_if(chain.begin(), chain.end(), std::back_inserter(others), [&](const Booking* each) { return each != &booking; });
  if (others.empty() || others[0]->start_ns > booking.start_ns) return true;
  const bool absent = others[0]->start_ns + kLateNs < now_ns && !others[0]->held;
  return absent && now_ns + booking.need_ns <= latest(others, true);
}

// What a booking adds to who waits for its start or its text (its prompt may be read first), or else to its steps only.
inline Ns added_ns(const Booking& booking, bool waits) { return waits ? booking.weight_ns : booking.work.chunk_ns; }

// One end with what bookings add that start before it: each moves it, and so further ones in. `Each` gives bookings by start.
template <class Bookings>
Ns disturbed_end(Ns end, const Bookings& booked, bool waits) {
  for (const auto& booking : booked) {
    if (booking->start_ns > end) break;
    end += added_ns(*booking, waits);
  }
  return end;
}

// What the bookings of one slot can add to somebody within `reach` steps.
//
// One begins after another at least by the steps that the earlier one may take, even if that ends early. Prompts are read in the order of
// admission: only the first one can be read before somebody else's, and only of who `waits`; further ones only make steps longer.
inline Ns run_ns(const Chain& chain, int64_t reach, bool waits) {
  Ns most = 0;
  for (size_t place = 0; place < chain.size(); place++) {
    Ns added = added_ns(*chain[place], waits);
    int64_t steps = chain[place]->steps;
    for (size_t later = place + 1; later < chain.size() && steps <= reach; later++) {
      added += chain[later]->work.chunk_ns;
      steps += chain[later]->steps;
    }
    most = std::max(most, added);
  }
  return most;
}

// What of `run_ns` of the first `count` of a chain and `last` behind them ends with `last`.
inline Ns grown_run_ns(const Chain& chain, size_t count, const Booking& last, int64_t reach) {
  Ns most = last.weight_ns, added = last.work.chunk_ns;
  int64_t steps = 0;
  for (size_t place = count; place-- > 0;) {
    steps += chain[place]->steps;
    if (steps > reach) break;
    most = std::max(most, chain[place]->weight_ns + added);
    added += chain[place]->work.chunk_ns;
  }
  return most;
}

}  // namespace zl::deadline
