// When what runs is done at the latest, with all that is booked, and whether that is soon enough.
//
// Most questions have a quick answer: if a slot's end may come later by everything that is booked, it does not matter what of it comes before
// that end. Only where this does not do, ends are computed one by one.
#pragma once

#include <bit>
#include <numeric>

#include "deadline_chains.hpp"
#include "deadline_occupants.hpp"

namespace zl::deadline {

class Bounds {
 public:
  // `booked` are all bookings by start, `chains` the same by slot, `not_before` the steps after which a slot's next booking may begin.
  Bounds(const Occupants& occupants, const Booked& booked, const std::vector<Chain>& chains, const std::vector<int64_t>& not_before)
      : limits(chains.size(), kNever), occupants_(occupants), booked_(booked), chains_(chains), not_before_(not_before) {}

  std::vector<Ns> limits;  // by slot: what its end must not pass
  Ns weight_ns = 0;        // of all bookings

  // What the other methods count from.
  void refresh(Ns base_ns, const Prices& prices) {
    base_ns_ = base_ns;
    prices_ = prices;
    const int digits = 64 - std::countl_zero(uint64_t(prices.step_ns));
    const Ns unit = Ns{1} << std::max(0, digits - kDigits);
    step_ns_ = (prices.step_ns + unit - 1) / unit * unit;  // rounded up
  }

  // The bound of its end without bookings, or a little later.
  Ns end_of_step(int64_t step) const {
    return base_ns_ + prices_.reserve_ns + occupants_.pending_ns + (step - occupants_.steps) * step_ns_;
  }

  // The bound of one slot's end, 0 if it is free.
  Ns end(int slot) const {
    const Ns alone = occupants_.end(slot, base_ns_, prices_);
    return alone ? disturbed_end(alone, booked_, occupants_.unconfirmed(slot)) : 0;
  }

  // The ends as a rule of slots from number `first` on.
  std::vector<Ns> typical_ends(int first) const {
    std::vector<Ns> ends;
    for (int slot = first; slot < int(limits.size()); slot++) {
      const Ns bound = end(slot);
      ends.push_back(bound ? base_ns_ + Ns(double(bound - base_ns_ - prices_.reserve_ns) / prices_.rate) : 0);
    }
    return ends;
  }

  // When the prompt of one that started now is read at the latest, with those of all who start before that.
  Ns read_ns(const Work& work) const {
    const int64_t steps = kJoinSteps + occupants_.pending_steps + work.chunks;
    const Ns read = base_ns_ + prices_.reserve_ns + occupants_.pending_ns + work.chunk_ns + steps * prices_.step_ns;
    return disturbed_end(read, booked_, true);
  }

  // The end of one that started now; -1 when that or its first token would be too late for its own terms.
  Ns end_of(const Work& work, const Terms& terms) const {
    const Ns base = base_ns_ + prices_.reserve_ns + occupants_.pending_ns + work.chunk_ns;
    Ns first = base + (kJoinSteps + occupants_.pending_steps + work.chunks) * prices_.step_ns;
    Ns end = first + work.later_steps() * prices_.step_ns;
    for (const Held& booking : booked_) {
      if (booking->start_ns > end) break;
      end += booking->weight_ns;
      if (booking->start_ns <= first) first += booking->weight_ns;
    }
    return first > terms.from_ns + terms.first_token_ns || end > terms.due_ns() ? -1 : end;
  }

  // All ends, 0 where a slot is free.
  std::vector<Ns> ends() const { return disturbed(0, nullptr); }

  // Whether no end passes its limit, if all were that much later.
  bool bear(Ns more_ns) const { return fits(more_ns) || within(disturbed(more_ns, nullptr)); }
  bool are_kept() const { return bear(0); }

  // The start of a booking, or a later one if what runs could not bear it.
  Ns start_beside(const Booking& wanted) const {
    Ns moved = wanted.start_ns;
    if (fits(wanted.weight_ns)) return moved;
    const std::vector<Ns> before = ends();
    if (*std::max_element(before.begin(), before.end()) < moved) return moved;
    const std::vector<Ns> after = disturbed(0, &wanted);
    for (size_t slot = 0; slot < after.size(); slot++) {
      const Ns end = after[slot], was = before[slot];
      if (end > limits[slot] && end > was && was >= moved) moved = was + 1;
    }
    return moved;
  }

 private:
  static constexpr int kDigits = 8;  // binary ones of a rounded price

  bool within(const std::vector<Ns>& ends) const {
    for (size_t slot = 0; slot < ends.size(); slot++) {
      if (ends[slot] > limits[slot]) return false;
    }
    return true;
  }

  // Whether what bookings and `more_ns` add to the last of all ends, and so at most to others, is no matter.
  bool fits(Ns more_ns) const {
    Ns least = kNever;
    int64_t final_step = 0;
    for (size_t slot = 0; slot < limits.size(); slot++) {
      if (const int64_t last = occupants_.last_step(int(slot))) {
        least = std::min(least, limits[slot] - last * step_ns_);
        final_step = std::max(final_step, last);
      }
    }
    const Ns room = least + occupants_.steps * step_ns_ - occupants_.pending_ns - base_ns_ - prices_.reserve_ns;
    if (room >= weight_ns + more_ns) return true;
    const Ns final_ns = end_of_step(final_step ? final_step : occupants_.steps);
    return room >= disturbed_end(final_ns + more_ns, booked_, occupants_.any_unconfirmed()) - final_ns;
  }

  // All ends, if `more_ns` were added now, and `wanted` were booked too.
  //
  // Bookings count where they start before an end; where that is too much, only as often as their slots can begin one within the steps left.
  std::vector<Ns> disturbed(Ns more_ns, const Booking* wanted) const {
    std::vector<Ns> alone(limits.size());
    for (size_t slot = 0; slot < alone.size(); slot++) {
      const Ns end = occupants_.end(int(slot), base_ns_, prices_);
      alone[slot] = end ? end + more_ns : 0;
    }
    std::vector<const Booking*> booked;
    booked.reserve(booked_.size() + 1);
    const size_t place = wanted ? first_after(booked_, wanted->start_ns) : booked_.size();
    for (size_t each = 0; each < place; each++) booked.push_back(booked_[each].get());
    if (wanted) booked.push_back(wanted);
    for (size_t each = place; each < booked_.size(); each++) booked.push_back(booked_[each].get());
    std::vector<Ns> ends = moved(alone, booked, occupants_.any_unconfirmed());
    for (size_t slot = 0; slot < ends.size(); slot++) {
      if (ends[slot] > limits[slot]) ends[slot] = closer(int(slot), alone[slot], wanted);
    }
    return ends;
  }

  // `disturbed_end` of all ends.
  static std::vector<Ns> moved(const std::vector<Ns>& ends, const std::vector<const Booking*>& booked, bool waits) {
    std::vector<Ns> after = ends;
    if (booked.empty() || booked[0]->start_ns > *std::max_element(ends.begin(), ends.end())) return after;
    std::vector<int> order(ends.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int one, int other) { return ends[one] < ends[other]; });
    Ns added = 0;
    size_t place = 0;
    for (int slot : order) {
      for (; place < booked.size() && booked[place]->start_ns <= ends[slot] + added; place++) added += added_ns(*booked[place], waits);
      after[slot] = ends[slot] ? ends[slot] + added : 0;
    }
    return after;
  }

  // A closer bound of one end that would pass its limit: what is booked adds to it only as far as it starts before that end.
  Ns closer(int slot, Ns alone, const Booking* wanted) const {
    for (Ns end = alone;;) {
      const Ns later = alone + begun_ns(slot, end, wanted);
      if (later == end) return end;
      end = later;
    }
  }

  // What bookings of other slots than `own` that start by `until_ns` can add within the steps left there, `wanted` included.
  //
  // What is booked in its own slot does not begin before its end, or only where that is no matter.
  Ns begun_ns(int own, Ns until_ns, const Booking* wanted) const {
    const int64_t left = occupants_.left(own);
    const bool waits = occupants_.unconfirmed(own);
    Ns added = 0;
    Chain near;
    for (int slot = 0; slot < int(chains_.size()); slot++) {
      const int64_t room = left - std::max<int64_t>(0, not_before_[slot] - occupants_.steps);
      if (slot == own || room < 0) continue;
      near.clear();
      for (Booking* booking : chains_[slot]) {
        if (booking->start_ns <= until_ns) near.push_back(booking);
      }
      if (wanted && wanted->slot == slot && wanted->start_ns <= until_ns) near.push_back(const_cast<Booking*>(wanted));
      added += run_ns(near, room, waits);
    }
    return added;
  }

  const Occupants& occupants_;
  const Booked& booked_;
  const std::vector<Chain>& chains_;
  const std::vector<int64_t>& not_before_;
  Ns base_ns_ = 0;
  Prices prices_;
  Ns step_ns_ = 0;  // rounded up
};

}  // namespace zl::deadline
