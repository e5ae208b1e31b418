// The calendar of slots: what runs until when, what is booked from when, and whether one more fits.
//
// Pure: the clock and the prices are passed in, there is one writer (the event loop), and nothing waits.
//
// How a promise is kept. Slots run in lockstep, and a step carries at most one chunk of one prompt, in the order of admission. So what is left
// of a running request is known in steps, and nobody can add to them; what others can do is make steps longer, by the chunks they bring. The
// bound of a request's end is therefore steps * step_ns plus all chunks that are admitted or booked before that end, plus one reserve. Its
// distance to what must not be passed - its own deadline, or the start that is booked behind it in the same slot - is its slack, and whoever
// brings chunks is admitted or booked only where every slack allows them.
#pragma once

#include <deque>

#include "deadline_starts.hpp"
#include "deadline_turns.hpp"

namespace zl::deadline {

class Calendar {
 public:
  // `slots` slots, the first `reserved` of them for urgent requests.
  Calendar(int slots, Ns grace_ns, Ns horizon_ns, int reserved)
      : slots(slots), reserved(std::min(reserved, slots)), grace_ns(grace_ns), horizon_ns(horizon_ns), occupants_(slots),
        agenda_(slots, occupants_), bounds_(agenda_.bounds), starts_(slots, occupants_, agenda_, grace_ns, horizon_ns, this->reserved),
        charged_(slots), admitted_as_(slots, kNever) {
    for (int slot = slots; slot-- > 0;) free_.push_back(slot);
  }
  Calendar(const Calendar&) = delete;
  Calendar& operator=(const Calendar&) = delete;

  const int slots, reserved;
  const Ns grace_ns, horizon_ns;
  Prices prices;  // what to promise with, from here on

  // What there is.

  // Slots that nobody holds now.
  int free() const { return int(free_.size()); }
  // Whether the engine has work.
  bool confirmed() const { return occupants_.busy(); }
  // Starts that are promised and not redeemed, in their order.
  const Booked& booked() const { return agenda_.booked; }
  // Slot time of all bookings, as it usually goes.
  Ns booked_ns() const { return agenda_.typical_ns; }
  // The deadline of what runs there.
  Ns due_ns(int slot) const { return occupants_.due[slot]; }

  // Slots that nobody holds and in which nothing is booked: whoever comes now may have one.
  int open() const {
    return int(std::count_if(free_.begin(), free_.end(), [&](int slot) { return agenda_.chains[slot].empty(); }));
  }

  // Milliseconds until so many slots are open: 0 when they are, else at least 1, rounded up.
  int64_t next_open_ms(int count, Ns now) {
    if (open() >= count) return 0;
    refresh(now);
    Ns end;
    if (count > 1) {
      std::vector<Ns> ends = bounds_.ends();
      std::nth_element(ends.begin(), ends.begin() + (count - 1), ends.end());
      end = ends[size_t(count - 1)];
    } else if (agenda_.unbooked) {
      end = bounds_.end_of_step(*std::min_element(agenda_.opens.begin(), agenda_.opens.end()));
    } else {
      end = *std::min_element(agenda_.tails.begin(), agenda_.tails.end());
    }
    return std::max<int64_t>(1, end > now ? (end - now + kMs - 1) / kMs : 0);
  }

  // The booking that is the first to give way to another one.
  Held last_soft() const {
    const auto found = std::find_if(agenda_.booked.rbegin(), agenda_.booked.rend(), [](const Held& each) { return each->yields(); });
    return found == agenda_.booked.rend() ? nullptr : *found;
  }

  // Whether every promise can be kept as things stand: the invariant.
  bool is_feasible(Ns now) {
    refresh(now);
    return bounds_.are_kept() && std::all_of(agenda_.booked.begin(), agenda_.booked.end(), [](const Held& each) { return each->spare_ns() >= 0; });
  }

  // The bound of each slot's end as of the last look, 0 where it is free.
  std::vector<Ns> ends() const {
    std::vector<Ns> ends(slots);
    for (int slot = 0; slot < slots; slot++) ends[slot] = bounds_.end(slot);
    return ends;
  }

  // Slots whose request is not done at its deadline.
  std::vector<int> late(Ns now) const {
    std::vector<int> found;
    for (int slot = 0; slot < slots; slot++) {
      if (occupants_.due[slot] < now) found.push_back(slot);
    }
    return found;
  }

  // Bookings whose client has not come in time; the caller voids them.
  Booked overdue(Ns now) const {
    Booked found;
    for (const Held& booking : agenda_.booked) {
      if (booking->start_ns >= now - grace_ns) break;
      if (!booking->held) found.push_back(booking);
    }
    return found;
  }

  // What may start now.

  // The slot that could be taken now, or -1 where that would break a promise, the request's own ones included, or where somebody who starts
  // before `turn_ns` would wait for it.
  int fit(const Work& work, const Terms& terms, Ns now, Ns turn_ns = kNever) {
    if (free_.empty()) return -1;
    refresh(now);
    const Ns end = bounds_.end_of(work, terms);
    if (end < 0 || !undisturbing(work, end, terms)) return -1;
    if (!agenda_.bear(bounds_.read_ns(work), work.weight_ns(prices))) return -1;
    return suitable(now + work.typical_ns(prices, slots - free()), end, terms, turn_ns);
  }

  // `fit`, and take that slot.
  int claim(const Work& work, const Terms& terms, Ns now) {
    const int slot = fit(work, terms, now);
    if (slot >= 0) walk_in(slot, work, terms, now);
    return slot;
  }

  // So many slots for `work` each, or none where that would break a promise, their own included. As if nobody had asked, then.
  std::vector<int> claim_all(const Work& work, const Terms& terms, int count, Ns now) {
    std::vector<int> claimed;
    if (free() < count) return claimed;
    std::vector<std::pair<Margin*, Ns>> margins;
    for (const Held& booking : agenda_.booked) {
      for (Margin& margin : booking->margins) margins.emplace_back(&margin, margin.margin_ns);
    }
    while (int(claimed.size()) < count) {
      const int slot = claim(work, terms, now);
      if (slot < 0) {
        for (; !claimed.empty(); claimed.pop_back()) release(claimed.back());  // the last one first: they are handed out in the same order again
        for (auto& [margin, margin_ns] : margins) margin->margin_ns = margin_ns;
        break;
      }
      claimed.push_back(slot);
    }
    return claimed;
  }

  // Soft bookings without which `claim` would succeed; none where that does not depend on them.
  Booked in_the_way(const Work& work, const Terms& terms, Ns now) {
    if (free_.empty() || !last_soft()) return {};
    refresh(now);
    const Ns end = bounds_.end_of(work, terms);
    if (end < 0 || !undisturbing(work, end, terms)) return {};
    const Ns read = bounds_.read_ns(work), weight = work.weight_ns(prices);
    Booked heavy;
    for (const Held& booking : agenda_.booked) {
      if (booking->start_ns >= read) break;
      if (booking->spare_ns() < weight) heavy.push_back(booking);
    }
    Chain found;
    bool any = false;
    for (int slot : free_) {
      if (slot < first_for(terms)) continue;
      Chain before;
      for (Booking* booking : agenda_.chains[slot]) {
        if (booking->start_ns < end) before.push_back(booking);
      }
      const auto start = [](const Chain& chain) { return chain.empty() ? 0 : chain[0]->start_ns; };
      if (!std::all_of(before.begin(), before.end(), [](const Booking* each) { return each->yields(); })) continue;
      if (!any || start(before) < start(found)) found = before;  // the least likely to be redeemed
      any = true;
    }
    if (!any || !std::all_of(heavy.begin(), heavy.end(), [](const Held& each) { return each->yields(); })) return {};
    Booked yielding;
    for (const Booking* each : found) yielding.push_back(held(each));
    for (const Held& each : heavy) {
      if (std::find(found.begin(), found.end(), each.get()) == found.end()) yielding.push_back(each);
    }
    return yielding;
  }

  // Starts what was booked, where it follows what was booked before it, or else, in its place, where somebody without a booking could; -1
  // while that is nowhere. If it `waits`, only where others could as well, as nobody takes the slot that is kept for it.
  int redeem(Booking& booking, bool waits, Ns now) {
    if (const int slot = waits ? -1 : following(booking, now); slot >= 0) {
      agenda_.not_before[booking.slot] = occupants_.steps + booking.steps;
      agenda_.reading[slot] = held(&booking);
      agenda_.remove(booking, true);
      agenda_.follows[slot] = slot == booking.slot;
      take(slot, booking.work, booking.terms, now);
      return slot;
    }
    if (waits && fit(booking.work, booking.terms, now) < 0) return -1;
    const Agenda::Lifted lifted = agenda_.lift(booking);
    const int slot = fit(booking.work, booking.terms, now, booking.start_ns);
    if (slot < 0) {
      agenda_.put_back(lifted);
      return -1;
    }
    agenda_.demands.remove(booking);
    walk_in(slot, booking.work, booking.terms, now);
    return slot;
  }

  // The true length is known and the engine gets the request. False: that breaks a promise; release the slot.
  bool confirm(int slot, const Work& work, Ns now) {
    const Work claimed = occupants_.confirm(slot, work);
    agenda_.bind(slot);
    refresh(now);
    const Ns weight = work.weight_ns(prices);
    if (work.chunks <= claimed.chunks && work.tokens <= claimed.tokens) {  // its own, if it waited for too long
      refund(slot, weight);
      return bounds_.end(slot) <= occupants_.due[slot] || bounds_.ends()[slot] <= occupants_.due[slot];
    }
    const Ns read = bounds_.read_ns(work);
    refund(slot, 0);  // whom it was charged to may be others than who starts before it is read now
    if (!bounds_.are_kept() || !agenda_.bear(read, weight)) return false;
    charged_[slot] = {agenda_.charge(read, weight), weight, true};
    return true;
  }

  // Its client is gone, or its text is complete: the slot comes back at the next step border.
  void ending(int slot) {
    occupants_.ending(slot);
    agenda_.bind(slot);
  }

  // Gives a slot back. Idempotent: a slot that is free stays free.
  void release(int slot) {
    if (is_free(slot)) return;
    read(slot);
    occupants_.release(slot);
    agenda_.follows[slot] = false;
    free_.push_back(slot);
    agenda_.bind(slot);
  }

  // A step is done, or several at once; the last one carried a chunk of `prefill_slot`, or -1.
  void on_step(int prefill_slot, Ns ended_ns, int64_t steps) {
    if (!occupants_.on_step(prefill_slot, ended_ns, steps)) return;
    read(prefill_slot);
    agenda_.bind(prefill_slot);
  }

  // What runs there has so many steps left, in a calendar that is made for what runs already.
  void set_left(int slot, int64_t steps) {
    occupants_.set_left(slot, steps);
    agenda_.bind(slot);
  }

  // The first `tokens` of a slot's prompt were attached, not computed.
  void skip(int slot, int64_t tokens, int64_t chunk_tokens) { occupants_.skip(slot, tokens, chunk_tokens); }

  // What was confirmed in a slot, and has not run yet, turns out to need no more than this.
  void shorten(int slot, const Work& work) {
    occupants_.shorten(slot, work);
    agenda_.bind(slot);
    const Ns weight = work.weight_ns(prices);
    if (weight < charged_[slot].weight_ns) refund(slot, weight);
  }

  // What may start later: see Starts.

  Held book(const Work& work, const Terms& terms, const Spaced& spaced, bool soft, Room room, bool waited, Ns now) {
    const Held booking = starts_.book(work, terms, moment(now), spaced, soft, room, waited);
    if (booking && booking->awaits_ns) awaiting_.push_back({booking, admitted_});
    return booking;
  }
  Ns tell(const Work& work, const Terms& terms, const Spaced& spaced, Ns now) { return starts_.tell(work, terms, moment(now), spaced); }
  // Forgets a booking: nobody will come for it, or it is not needed any more.
  void forget(Booking& booking) { agenda_.remove(booking, false); }

 private:
  static constexpr Ns kMs = 1'000'000;

  // To whom what is claimed in a slot adds how much.
  struct Charge {
    Booked to;
    Ns weight_ns = 0;
    bool any = false;
  };
  // Until all are read that were admitted before it was booked.
  struct Awaiting {
    Held booking;
    int64_t admitted;  // how many those are
  };

  bool is_free(int slot) const { return std::find(free_.begin(), free_.end(), slot) != free_.end(); }
  int first_for(const Terms& terms) const { return terms.urgent ? 0 : reserved; }

  Held held(const Booking* booking) const {
    const auto place = std::find_if(agenda_.booked.begin(), agenda_.booked.end(), [&](const Held& each) { return each.get() == booking; });
    if (place == agenda_.booked.end()) throw std::out_of_range("this is not booked");
    return *place;
  }

  // Where the count of steps begins: the last border, or now on an engine that rests.
  Ns base(Ns now) const { return free() == slots ? now : occupants_.border_ns; }
  void refresh(Ns now) { bounds_.refresh(base(now), prices); }
  Moment moment(Ns now) {
    refresh(now);
    return {now, base(now), prices, confirmed()};
  }

  // Whether its chunks break no promise of what runs, and nobody's chunks break its own cadence.
  bool undisturbing(const Work& work, Ns end, const Terms& terms) const {
    if (!occupants_.interrupts(prices).empty()) return false;
    const Booked& booked = agenda_.booked;
    if (terms.per_token_ns < prices.stall_ns && (occupants_.pending_steps || (!booked.empty() && booked[0]->start_ns < end))) return false;
    return bounds_.bear(occupants_.any_unconfirmed() ? work.weight_ns(prices) : work.chunk_ns);
  }

  // A free slot that is done when what is booked in it must begin at the latest, and that nobody waits for who starts before `turn_ns`; or -1.
  // What is booked in slots for all does not count on reserved ones.
  int suitable(Ns typical, Ns end, const Terms& terms, Ns turn_ns) const {
    const auto next_ns = [&](int slot) { return agenda_.chains[slot].empty() ? kNever : agenda_.chains[slot][0]->start_ns; };
    int last = -1, kept = -1;
    for (auto slot = free_.rbegin(); slot != free_.rend(); slot++) {
      if (*slot < first_for(terms) || agenda_.behind[*slot] < end) continue;
      if (*slot < reserved && next_ns(*slot) >= typical) kept = *slot;
      if (last < 0 || next_ns(*slot) > next_ns(last)) last = *slot;
    }
    if (last < 0 || agenda_.booked.empty()) return last;
    return is_spare(bounds_.typical_ends(reserved), typical, agenda_.booked, turn_ns) ? last : kept;
  }

  // The slot in which something booked can start as what follows in its own one, or -1.
  int following(const Booking& booking, Ns now) {
    const int own = booking.slot;
    const bool shaped = confirmed() && occupants_.steps < agenda_.not_before[own];
    // Of the bookings of one slot others have one prompt before them at most.
    const bool unread = std::any_of(agenda_.reading.begin(), agenda_.reading.end(), [&](const Held& each) { return each && each->slot == own; });
    if (shaped || unread || !is_next(booking, agenda_.chains[own], now)) return -1;
    if (is_free(own)) return own;
    refresh(now);
    if (bounds_.end(own) > occupants_.due[own]) return -1;  // who runs there has been promised that none of its own slot disturbs it
    return suitable(now + booking.typical_ns, now + booking.need_ns, booking.terms, booking.start_ns);
  }

  // Takes a slot that fits somebody without a booking.
  void walk_in(int slot, const Work& work, const Terms& terms, Ns now) {
    const Ns weight = work.weight_ns(prices);
    charged_[slot] = {agenda_.charge(bounds_.read_ns(work), weight), weight, true};
    take(slot, work, terms, now);
  }

  void take(int slot, const Work& work, const Terms& terms, Ns now) {
    if (free() == slots) {
      occupants_.border_ns = now;
      std::fill(agenda_.not_before.begin(), agenda_.not_before.end(), 0);  // nobody is left whom quick bookings could disturb
    }
    std::erase(free_, slot);
    occupants_.take(slot, work, terms, prices);
    admitted_as_[slot] = work.chunks ? ++admitted_ : kNever;
    agenda_.bind(slot);
  }

  // A prompt adds only so much, or nothing any more: the rest is given back to those who allowed for it.
  void refund(int slot, Ns weight_ns) {
    Charge& charge = charged_[slot];
    for (const Held& booking : charge.to) Demands::charge(*booking, std::min<Ns>(0, weight_ns - charge.weight_ns));
    if (weight_ns) {
      charge.weight_ns = weight_ns;
      charge.any = true;
    } else {
      charge = {};
    }
  }

  // The prompt there holds nobody up any more.
  void read(int slot) {
    if (charged_[slot].any) refund(slot, 0);
    if (agenda_.reading[slot]) agenda_.demands.read(*std::exchange(agenda_.reading[slot], nullptr));
    admitted_as_[slot] = kNever;
    if (awaiting_.empty()) return;
    const int64_t first = *std::min_element(admitted_as_.begin(), admitted_as_.end());
    for (; !awaiting_.empty() && awaiting_.front().admitted < first; awaiting_.pop_front()) {
      Booking& booking = *awaiting_.front().booking;
      Demands::charge(booking, -std::exchange(booking.awaits_ns, 0));
    }
  }

  std::vector<int> free_;  // a stack: the slot that was used last is the warmest in the caches
  Occupants occupants_;
  Agenda agenda_;
  Bounds& bounds_;
  Starts starts_;
  std::vector<Charge> charged_;  // by slot that is claimed
  std::vector<int64_t> admitted_as_;  // by slot: the how-manieth it is, while its prompt is not read
  int64_t admitted_ = 0;              // how many were
  std::deque<Awaiting> awaiting_;     // as they were booked
};

}  // namespace zl::deadline
