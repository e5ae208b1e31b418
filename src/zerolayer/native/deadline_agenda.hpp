// What is booked, slot by slot and in the order of the starts, and what that means for who runs.
//
// The bookings of one slot are a chain (deadline_chains.hpp): each of them follows what runs in the slot, or the one before it.
#pragma once

#include "deadline_bounds.hpp"
#include "deadline_demands.hpp"

namespace zl::deadline {

// Vectors have an entry for each slot.
class Agenda {
 public:
  Agenda(int slots, const Occupants& occupants)
      : chains(slots), demands(chains), behind(slots, kNever), follows(slots), reading(slots), not_before(slots), opens(slots), tails(slots, kNever),
        unbooked(slots), bounds(occupants, booked, chains, not_before), occupants_(occupants) {}
  Agenda(const Agenda&) = delete;
  Agenda& operator=(const Agenda&) = delete;

  Booked booked;
  std::vector<Chain> chains;
  Demands demands;
  std::vector<Ns> behind;           // when a slot must be free for what is booked in it
  std::vector<char> follows;        // what runs there was booked
  std::vector<Held> reading;        // what was booked, while its prompt is read there
  std::vector<int64_t> not_before;  // number of the step after which the slot's next booking may begin
  std::vector<int64_t> opens;       // for a next booking: the last step of what runs, where nothing is booked, else never
  std::vector<Ns> tails;            // and when the last booking of a slot typically ends
  int unbooked;                     // slots without bookings
  Ns typical_ns = 0;                // slot time of all bookings
  int strict = 0;                   // how many of them allow no foreign chunk
  Bounds bounds;

  // Somebody who was not booked adds that to all that start before `end_ns`; returns them.
  Booked charge(Ns end_ns, Ns weight_ns) {
    Booked found(booked.begin(), booked.begin() + ptrdiff_t(first_from(booked, end_ns)));
    for (const Held& booking : found) Demands::charge(*booking, weight_ns);
    return found;
  }

  // Whether all that start before `end_ns` can bear that much.
  bool bear(Ns end_ns, Ns weight_ns) const {
    for (const Held& booking : booked) {
      if (booking->start_ns >= end_ns) break;
      if (booking->spare_ns() < weight_ns) return false;
    }
    return true;
  }

  // File it in its slot; its margins are the caller's to add.
  void add(const Held& booking) {
    booked.insert(booked.begin() + ptrdiff_t(first_after(booked, booking->start_ns)), booking);
    Chain& chain = chains[booking->slot];
    chain.push_back(booking.get());
    unbooked -= chain.size() == 1;
    count(*booking, 1);
  }

  // It `begins`, or nobody will come for it. Raises where it is not booked.
  void remove(Booking& booking, bool begins) {
    const Lifted lifted = lift(booking);
    if (begins) {
      demands.begin(lifted.booking);
    } else {
      demands.remove(booking);
    }
  }

  // Where it stood among all bookings, and among those of its slot.
  struct Lifted {
    Held booking;
    ptrdiff_t place, link;
  };

  // As if it was not booked, but for what others allow for it. Raises where it is not booked.
  Lifted lift(Booking& booking) {
    const auto place = std::find_if(booked.begin(), booked.end(), [&](const Held& each) { return each.get() == &booking; });
    if (place == booked.end()) throw std::out_of_range("this is not booked");
    Chain& chain = chains[booking.slot];
    const auto link = std::find(chain.begin(), chain.end(), &booking);
    const Lifted lifted{*place, place - booked.begin(), link - chain.begin()};
    booked.erase(place);
    chain.erase(link);
    unbooked += chain.empty();
    count(booking, -1);
    return lifted;
  }

  void put_back(const Lifted& lifted) {
    Booking& booking = *lifted.booking;
    Chain& chain = chains[booking.slot];
    booked.insert(booked.begin() + lifted.place, lifted.booking);
    chain.insert(chain.begin() + lifted.link, &booking);
    unbooked -= chain.size() == 1;
    count(booking, 1);
  }

  // What a slot's occupant must not pass has changed.
  void bind(int slot) {
    const Chain& chain = chains[slot];
    behind[slot] = chain.empty() ? kNever : latest(chain, follows[slot]);
    bounds.limits[slot] = std::min(behind[slot], occupants_.due[slot]);
    opens[slot] = chain.empty() ? occupants_.last_step(slot) : kNever;
  }

 private:
  void count(const Booking& booking, int sign) {
    const Chain& chain = chains[booking.slot];
    typical_ns += sign * booking.typical_ns;
    strict += sign * booking.strict;
    bounds.weight_ns += sign * booking.weight_ns;
    tails[booking.slot] = chain.empty() ? kNever : chain.back()->start_ns + chain.back()->typical_ns;
    bind(booking.slot);
  }

  const Occupants& occupants_;
};

}  // namespace zl::deadline
