// What the calendar holds: a request's work, its terms, and a promised start. Times are monotonic nanoseconds.
//
// Plans use what is typical, promises use bounds. A booking starts when its slot is typically free, and its client is held until the slot is:
// for moments as a rule, and never beyond `hold_ns`, which covers the distance to the bound and which the client's own limits allow. It may
// also come late, by up to the grace. Both are bounds of its start, so the bound of its end is `max(start + grace, free) + need`, where its
// slot is free at `free` at the latest; and what is booked behind it must be able to wait for that.
//
// `need` holds what others may add meanwhile (deadline_demands.hpp). Whoever was not booked takes from what is left of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace zl::deadline {

using Ns = int64_t;

inline constexpr Ns kNever = Ns{1} << 62;
inline constexpr Ns kEarlyNs = 5'000'000;    // a booked client may come this much early; it is held until its start
inline constexpr int64_t kJoinSteps = 3;  // one in flight, one whose report is still on its way to the loop, and a heartbeat's chunk

// Whether x > ns, without rounding ns to what a double can hold.
inline bool above(double x, Ns ns) {
  const double whole = std::floor(x);
  return Ns(whole) > ns || (Ns(whole) == ns && x > whole);
}

// At full occupancy (model/cost.py): n steps with m full chunks last at most n * step + m * chunk + reserve.
struct Prices {
  Ns step_ns = 0, chunk_ns = 0, reserve_ns = 0, stall_ns = 0;
  double rate = 1.0;  // promised over typical
  Ns spent_ns = 0;    // of the reserve, now: whoever starts later may find it whole
  bool operator==(const Prices&) const = default;
};

// What a request needs of the engine: steps that carry its prompt, what those add, what each but the last one adds, and tokens at most.
struct Work {
  int64_t chunks = 0;
  Ns chunk_ns = 0, full_ns = 0;
  int64_t tokens = 0;

  bool operator==(const Work&) const = default;
  int64_t later_steps() const { return std::max<int64_t>(0, tokens - 1); }
  // From its first chunk to its last token.
  int64_t steps() const { return chunks + later_steps(); }
  // How much later its prompt makes somebody who waits for it.
  Ns weight_ns(const Prices& prices) const { return chunk_ns + chunks * prices.step_ns; }
  // Bound of its first token on an engine that does nothing else.
  Ns first_ns(const Prices& prices) const { return prices.reserve_ns + (kJoinSteps + chunks) * prices.step_ns + chunk_ns; }
  // Bound of its end there.
  Ns need_ns(const Prices& prices) const { return prices.reserve_ns + (kJoinSteps + steps()) * prices.step_ns + chunk_ns; }
  // How long it usually takes while each of `others` slots begins one request like it.
  Ns typical_ns(const Prices& prices, int64_t others) const {
    return Ns(double(steps() * prices.step_ns + (1 + others) * chunk_ns) / prices.rate);
  }
};

// What must hold for a request, counted from `from_ns`, its arrival; `patience_ns` is a point in time.
struct Terms {
  Ns from_ns = 0, first_token_ns = 0, per_token_ns = 0, end_ns = 0, patience_ns = kNever;
  bool urgent = false;  // may use the reserved slots

  Ns due_ns() const { return std::min(from_ns + end_ns, patience_ns); }
};

// What a booking leaves to who comes without one: nothing; its slot, which is lent while others come free for it in time; or before its start,
// besides, as much time as it takes itself.
enum class Room { none, lent, gap };

struct Margin;

// Bookings to whom others can add the same: those with about as many steps, or, until its first token (reach 0), all.
struct Kin {
  Kin(int64_t reach, std::vector<Ns> parts) : reach(reach), parts(std::move(parts)) {
    for (Ns part : this->parts) used_ns += part;
  }
  int64_t reach;             // steps in which others can begin
  std::vector<Ns> parts;     // what the bookings of each slot may add within so many steps
  Ns used_ns = 0;            // and what has begun since; only its growth matters
  Ns least_ns = kNever;      // the smallest margin, or less
  std::vector<Margin*> members;
};

struct Booking;

// What the `used_ns` of a booking's kin may grow to.
struct Margin {
  Kin* kin = nullptr;
  Booking* booking = nullptr;
  Ns margin_ns = 0;

  Ns spare_ns() const { return margin_ns - kin->used_ns; }
};

// A start that is promised. Whoever made it comes within `start_ns` and `start_ns` plus the grace.
struct Booking {
  Booking(Ns start_ns, int slot, const Work& work, const Terms& terms, int64_t steps, Ns typical_ns, Ns need_ns, Ns weight_ns, bool soft = false)
      : start_ns(start_ns), slot(slot), work(work), terms(terms), steps(steps), typical_ns(typical_ns), need_ns(need_ns), weight_ns(weight_ns),
        soft(soft) {}
  Booking(const Booking&) = delete;
  Booking& operator=(const Booking&) = delete;

  Ns start_ns;
  int slot;
  Work work;
  Terms terms;
  int64_t steps;
  Ns typical_ns;      // from start to end, as it usually goes
  Ns need_ns;         // the bound of that, with everything that others may add
  Ns first_ns = 0;    // the same from start to first token
  Ns weight_ns;       // what it adds to others
  Ns single_ns = 0;   // of need_ns: the first chunks of other slots, which it need not fear again if it follows at once
  Ns hold_ns = 0;     // how long its client may be held
  Margin margins[2];  // until its end, and until its first token
  bool filed = false;   // the margins count
  bool strict = false;  // its stream allows no foreign chunk
  bool soft = false;    // it gives way to whoever comes before its client does
  bool held = false;    // its client is here
  bool lends = false;   // its slot is lent to others, as long as it can wait for them
  bool doubled = false;  // an equal request that says that it is none of this came in its time
  Ns early_ns = kEarlyNs;  // by how much its client may come before the start; more where it was told another one
  Ns awaits_ns = 0;     // of what others may add: so long after its start prompts may be read that waited when it was booked
  std::string credential, key, ticket;

  bool yields() const { return soft && !held; }
  // What others may still add.
  Ns spare_ns() const { return filed ? std::min(margins[0].spare_ns(), margins[1].spare_ns()) : 0; }
  // When its slot must be free.
  Ns latest_ns() const { return start_ns + hold_ns; }
  // The bound of its end, when its client is as late as it may be and its slot is free at `free_ns`; 0: at the latest.
  Ns last_ns(Ns grace_ns, Ns free_ns = 0) const { return std::max(start_ns + grace_ns, free_ns ? free_ns : latest_ns()) + need_ns; }
  // The same for one that follows upon another booking of its slot.
  Ns next_ns(Ns grace_ns, Ns free_ns) const { return std::max(start_ns + grace_ns + need_ns, free_ns + need_ns - single_ns); }
};

using Held = std::shared_ptr<Booking>;
using Booked = std::vector<Held>;           // by start
using Chain = std::vector<Booking*>;        // of one slot, in the order of the starts

// The place of the first one that starts at `start_ns` or later.
inline size_t first_from(const Booked& booked, Ns start_ns) {
  const auto before = [](const Held& each, Ns start) { return each->start_ns < start; };
  return size_t(std::lower_bound(booked.begin(), booked.end(), start_ns, before) - booked.begin());
}

// And of the first one that starts after it.
inline size_t first_after(const Booked& booked, Ns start_ns) {
  const auto after = [](Ns start, const Held& each) { return start < each->start_ns; };
  return size_t(std::upper_bound(booked.begin(), booked.end(), start_ns, after) - booked.begin());
}

}  // namespace zl::deadline
