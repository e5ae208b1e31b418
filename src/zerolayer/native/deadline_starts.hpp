// When a booking can start: the earliest time that suits it, what runs, and all that is booked already.
//
// A start is planned for when its slot is typically free. Its client can be held until the slot is, for as long as its own limits allow; where
// the bound of that time is further away, the start is later.
#pragma once

#include <functional>

#include "deadline_agenda.hpp"

namespace zl::deadline {

// Moves a start to the next one that the client can be told.
using Spaced = std::function<Ns(Ns)>;

// What one decision rests on. `base_ns` is where the count of steps begins; `busy`: the engine has work.
struct Moment {
  Ns now_ns, base_ns;
  Prices prices;
  bool busy;
};

// Reads occupants and agenda; books only what it was told to.
class Starts {
 public:
  Starts(int slots, const Occupants& occupants, Agenda& agenda, Ns grace_ns, Ns horizon_ns, int reserved)
      : slots_(slots), reserved_(reserved), occupants_(occupants), agenda_(agenda), grace_ns_(grace_ns), horizon_ns_(horizon_ns) {}

  // A booking with the earliest start, in the agenda; none when it would be beyond horizon or patience.
  //
  // `waited`: its client was refused without a booking before.
  Held book(const Work& work, const Terms& terms, const Moment& at, const Spaced& spaced, bool soft, Room room, bool waited) {
    const Prices& prices = at.prices;
    const Ns plain = work.need_ns(prices) + prices.spent_ns, first = work.first_ns(prices) + prices.spent_ns;
    const auto booking = std::make_shared<Booking>(0, -1, work, terms, work.steps(), work.typical_ns(prices, slots_ - 1), plain,
                                                   work.weight_ns(prices), soft);
    booking->first_ns = first;
    const Ns bound = earliest(*booking, at);
    if (bound == kNever) return nullptr;
    Spares spares;
    // Whoever comes early has that much less of its own limits left at its start.
    const Ns end_ns = terms.end_ns - kEarlyNs, first_token_ns = terms.first_token_ns - kEarlyNs;
    if (!agenda_.demands.set_aside(*booking, end_ns - plain, first_token_ns - first, spares)) return nullptr;
    if (!agenda_.demands.bear(*booking, waited)) return nullptr;
    const Ns longest = booking->hold_ns;
    const Ns begun_ns = terms.patience_ns - booking->need_ns;  // at the latest, however long its client may be held
    if (bound > begun_ns) return nullptr;
    // Prompts that wait now and are not read by its start are the first to take from its spare.
    const Ns read_ns = waiting_until_ns(at), spare_ns = std::min(spares.spare_ns, spares.first_spare_ns);
    const Ns left = room == Room::gap ? booking->typical_ns * kGap / 8 + kJoinSteps * prices.step_ns : 0;  // whoever comes joins first
    booking->start_ns = std::max(booking->start_ns + left, bound - longest);
    booking->strict = terms.per_token_ns < prices.stall_ns;
    const Ns last = std::min(at.now_ns + horizon_ns_, begun_ns);
    for (int round = 0; round < kRounds; round++) {
      const Ns free_from = apart(booking->start_ns, distance_ns(*booking)), wanted = spaced ? spaced(free_from) : free_from;
      booking->start_ns = wanted;
      const Ns moved = undisturbed(*booking, read_ns - spare_ns, at);
      if (moved > last) return nullptr;
      if (moved == wanted) {
        booking->lends = room != Room::none && !booking->strict && !agenda_.strict;
        booking->hold_ns = std::max<Ns>(0, std::min({longest, std::max(bound - moved, lent_ns(*booking, longest)), begun_ns - moved}));
        agenda_.add(booking);
        agenda_.demands.add(*booking, spares);
        booking->awaits_ns = std::max<Ns>(0, read_ns - moved);
        Demands::charge(*booking, booking->awaits_ns);
        return booking;
      }
      booking->start_ns = moved;
    }
    return nullptr;
  }

  // When all that is booked has begun and a slot is typically free. Nothing is held then, and nothing promised.
  //
  // -1 when that is beyond horizon or patience, or when its limits leave no room even on an idle engine.
  Ns tell(const Work& work, const Terms& terms, const Moment& at, const Spaced& spaced) {
    const Prices& prices = at.prices;
    const Ns need = work.need_ns(prices), first_room = terms.first_token_ns - work.first_ns(prices);
    Booking wanted(0, -1, work, terms, work.steps(), work.typical_ns(prices, slots_ - 1), need, work.weight_ns(prices));
    if (earliest(wanted, at) == kNever || need > terms.end_ns || first_room < 0) return -1;
    if (!agenda_.booked.empty()) {
      const Booking& ahead = *agenda_.booked.back();  // one that gives way is not made to: its client would have come in vain
      wanted.start_ns = std::max(wanted.start_ns, ahead.start_ns + (ahead.soft ? ahead.typical_ns : distance_ns(wanted)));
    }
    const Ns last = std::min(at.now_ns + horizon_ns_, terms.patience_ns - need);
    for (int round = 0; round < kRounds; round++) {
      Ns moved = undisturbed(wanted, waiting_until_ns(at) - first_room, at);
      if (spaced) moved = spaced(moved);
      if (moved > last) return -1;
      if (moved == wanted.start_ns) return moved;
      wanted.start_ns = moved;
    }
    return -1;
  }

 private:
  static constexpr Ns kGap = 10;              // eighths of a service: the time that is left for who comes without a booking
  static constexpr int kRounds = 24;          // of looking for a start that suits everybody
  static constexpr Ns kSoonNs = 1'000'000;
  static constexpr Ns kLeadShare = 12;  // starts lie that part of a service early: to be held for a moment costs less than a slot at rest

  // For how long its slot may be lent after its start: as long as it takes itself, as far as its limits leave that; a quarter is for who is
  // booked behind it. Who allows no foreign chunk does not lend: nobody is booked beside it until it ends at the latest.
  static Ns lent_ns(const Booking& booking, Ns longest) { return booking.lends ? std::min(longest * 3 / 4, booking.need_ns) : 0; }

  // Gives a booking the slot that can take one more first, and a start.
  //
  // Returns when it must be possible to begin at the latest; never when no slot is for it.
  Ns earliest(Booking& booking, const Moment& at) const {
    const int first = booking.terms.urgent ? 0 : reserved_;
    if (first >= slots_) return kNever;
    const Prices& prices = at.prices;
    const Ns base = at.base_ns;
    const double rate = prices.rate;
    const double origin = double(base) - double(base + prices.reserve_ns) / rate;  // typical ends lie on a line through the bounds
    const auto opening = std::min_element(agenda_.opens.begin() + first, agenda_.opens.end());
    const auto tail = std::min_element(agenda_.tails.begin() + first, agenda_.tails.end());
    int slot = -1;
    Ns bound = kNever;
    if (*opening != kNever) {
      slot = int(opening - agenda_.opens.begin());
      bound = agenda_.bounds.end(slot);
    }
    if (bound && above(origin + double(bound) / rate, *tail)) {
      slot = int(tail - agenda_.tails.begin());
      bound = agenda_.bounds.end(slot);
    }
    const int64_t wait = agenda_.not_before[slot] - occupants_.steps;
    if (wait > 0 && at.busy) bound = std::max(bound, base + prices.reserve_ns + wait * prices.step_ns + occupants_.pending_ns);
    Ns start = at.now_ns + kSoonNs;
    const Ns lead = booking.typical_ns / kLeadShare;
    if (bound) {
      start = std::max(start, Ns(origin + double(bound) / rate) - lead);
      bound += agenda_.unbooked * booking.weight_ns;  // the others are counted in it
      if (bound < at.now_ns) start = bound = 2 * at.now_ns - bound;  // late by t: the best guess is that it needs as long again
    }
    bool follows = agenda_.follows[slot];
    for (const Booking* ahead : agenda_.chains[slot]) {
      start = std::max(start - lead, ahead->start_ns) + ahead->typical_ns;
      if (ahead->lends) bound = std::max(bound, ahead->latest_ns());
      const Ns free = bound ? bound : 1;
      bound = follows ? ahead->next_ns(grace_ns_, free) : ahead->last_ns(grace_ns_, free);
      follows = true;
    }
    booking.slot = slot;
    booking.start_ns = std::max(start, at.now_ns + kSoonNs);  // whoever is ahead may be late
    return bound;
  }


  // When the prompts that are admitted have been read, but for the reserve, which is in what is booked; 0 where none waits.
  Ns waiting_until_ns(const Moment& at) const {
    const int64_t steps = occupants_.pending_steps;
    return steps ? at.base_ns + occupants_.pending_ns + (kJoinSteps + steps) * at.prices.step_ns : 0;
  }

  // Between two starts: less than starts have where slots follow each other without a rest.
  Ns distance_ns(const Booking& booking) const { return booking.typical_ns * 3 / (4 * slots_); }

  // `start_ns`, or the next time after it that is so far from all other starts.
  Ns apart(Ns start_ns, Ns distance) const {
    const Booked& booked = agenda_.booked;
    for (size_t place = first_from(booked, start_ns - distance + 1); place < booked.size() && booked[place]->start_ns < start_ns + distance; place++) {
      start_ns = booked[place]->start_ns + distance;
    }
    return start_ns;
  }

  // Its start, or a later one if what runs could not bear it. It cannot bear to begin before `ready_ns`.
  Ns undisturbed(const Booking& wanted, Ns ready_ns, const Moment& at) const {
    const Prices& prices = at.prices;
    Ns moved = std::max(agenda_.bounds.start_beside(wanted), ready_ns);
    for (int slot : occupants_.interrupts(prices)) moved = std::max(moved, agenda_.bounds.end(slot));
    if (wanted.strict || agenda_.strict) {
      for (const Held& other : agenda_.booked) {
        if (other->strict || wanted.strict) moved = std::max(moved, other->last_ns(grace_ns_));
      }
    }
    return moved;
  }

  int slots_, reserved_;
  const Occupants& occupants_;
  Agenda& agenda_;
  Ns grace_ns_, horizon_ns_;
};

}  // namespace zl::deadline
