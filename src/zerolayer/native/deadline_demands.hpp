// What bookings may add to each other. Refusals must be quick, so that nothing is computed for each pair of bookings.
//
// Bookings of one slot follow each other at least by the steps that the earlier one may take, so that within n steps another slot begins a
// known part of its chain at most (run_ns). Bookings with about the same n are kin: they have one sum over all slots, and what each of them can
// bear is a number that this sum must not pass.
#pragma once

#include <bit>

#include "deadline_chains.hpp"

namespace zl::deadline {

// What others may add to a booking beyond what is booked: until its end, and until its first token.
struct Spares {
  Kin* kin = nullptr;
  Ns spare_ns = 0, first_spare_ns = 0;
  std::unique_ptr<Kin> made;  // the kin, where it has no other member yet
};

class Demands {
 public:
  // `chains` are the calendar's bookings by slot.
  explicit Demands(const std::vector<Chain>& chains) : chains_(chains), read_(chains.size()) {
    kin_.push_back(std::make_unique<Kin>(0, std::vector<Ns>(chains.size())));
  }

  Demands(const Demands&) = delete;
  Demands& operator=(const Demands&) = delete;

  // Whether all that is booked can bear one more, and somebody like it who is not booked. Of those was one who `waited`: the room is for it.
  bool bear(const Booking& wanted, bool waited) const {
    Chain room;
    const Chain& before = sequence(wanted.slot, room);
    for (const auto& kin : kin_) {
      const Ns grown = grown_run_ns(before, before.size(), wanted, kin->reach) - kin->parts[wanted.slot], more = grown + (waited ? 0 : wanted.weight_ns);
      if (grown <= 0 || kin->least_ns - kin->used_ns >= more) continue;
      for (const Margin* each : kin->members) {
        if (each->booking->slot != wanted.slot && each->spare_ns() < more) return false;
      }
    }
    return true;
  }

  // How much others may add, and how long the client may be held, of what its limits leave; sets both. False where it cannot bear what is
  // booked already.
  bool set_aside(Booking& booking, Ns room_ns, Ns first_room_ns, Spares& spares) {
    const int64_t slots = int64_t(chains_.size()), steps = std::max<int64_t>(1, booking.steps);
    const Ns others = (slots - 1) * booking.weight_ns;
    spares.kin = kin_of(booking.steps, spares.made);
    const Ns load = load_ns(*spares.kin, booking.slot), singles = load_ns(*kin_[0], booking.slot);
    const Ns room = room_ns - load, first_room = first_room_ns - singles;
    if (std::min(room, first_room) < 0) return false;
    // To come: of each other slot one before the first token, before the end as many as it can begin, and a few unbooked. Whoever follows in
    // the slot starts later by that; where prompts take much of the time, one must do.
    const Ns some = others / kUnbookedShare, most = others + (slots - 1) * booking.work.chunk_ns * (spares.kin->reach / steps);
    const Ns expected = std::min(most, std::max(others, booking.typical_ns));
    spares.spare_ns = std::min(std::max<Ns>(0, expected - load) + some, room * 2 / 3);
    spares.first_spare_ns = std::min(std::max<Ns>(0, others - singles) + some, first_room * 2 / 3);
    booking.single_ns = singles;
    booking.need_ns += spares.spare_ns + load;
    booking.first_ns += spares.first_spare_ns + singles;
    booking.hold_ns = std::min(room - spares.spare_ns, first_room - spares.first_spare_ns);
    return true;
  }

  // Book it: it is the last of its chain already.
  void add(Booking& booking, Spares& spares) {
    if (spares.made) kin_.push_back(std::move(spares.made));
    Chain room;
    const Chain& sequence_with = sequence(booking.slot, room);
    for (const auto& kin : kin_) {
      const Ns grown = grown_run_ns(sequence_with, sequence_with.size() - 1, booking, kin->reach) - kin->parts[booking.slot];
      if (grown > 0) grow(*kin, booking.slot, grown);
    }
    booking.margins[0] = {spares.kin, &booking, spares.kin->used_ns + spares.spare_ns};
    booking.margins[1] = {kin_[0].get(), &booking, kin_[0]->used_ns + spares.first_spare_ns};
    booking.filed = true;
    for (Margin& margin : booking.margins) {
      margin.kin->members.push_back(&margin);
      margin.kin->least_ns = std::min(margin.kin->least_ns, margin.margin_ns);
    }
  }

  // Somebody who was not booked adds that to it.
  static void charge(Booking& booking, Ns weight_ns) {
    if (!booking.filed) return;
    for (Margin& margin : booking.margins) {
      margin.margin_ns -= weight_ns;
      margin.kin->least_ns = std::min(margin.kin->least_ns, margin.margin_ns);
    }
  }

  // It is out of its chain and runs; its prompt holds others up until it is `read`.
  void begin(const Held& booking) {
    read_[booking->slot].push_back(booking);
    forget(*booking);
  }

  // Its prompt is read, or will not be.
  void read(const Booking& booking) {
    auto& reading = read_[booking.slot];
    std::erase_if(reading, [&](const Held& each) { return each.get() == &booking; });
    shrink(booking.slot);
  }

  // It is out of its chain, and nobody comes for it.
  void remove(Booking& booking) {
    forget(booking);
    shrink(booking.slot);
  }

 private:
  static constexpr Ns kUnbookedShare = 8;
  static constexpr int kDigits = 4;  // binary ones of a reach: rounding up costs at most an eighth

  // Those with about `steps` steps, in which a slot's lockstep with the others is included.
  Kin* kin_of(int64_t steps, std::unique_ptr<Kin>& made) const {
    int64_t reach = steps + int64_t(chains_.size());
    const int64_t unit = int64_t{1} << std::max(0, 64 - std::countl_zero(uint64_t(reach)) - kDigits);
    reach = (reach + unit - 1) / unit * unit;
    for (const auto& kin : kin_) {
      if (kin->reach == reach) return kin.get();
    }
    std::vector<Ns> parts(chains_.size());
    for (int slot = 0; slot < int(parts.size()); slot++) parts[slot] = part_ns(reach, slot);
    made = std::make_unique<Kin>(reach, std::move(parts));
    return made.get();
  }

  // What bookings of other slots than `slot` may add to one of `kin`.
  static Ns load_ns(const Kin& kin, int slot) {
    Ns sum = -kin.parts[slot];
    for (Ns part : kin.parts) sum += part;
    return sum;
  }

  void forget(Booking& booking) {
    if (!booking.filed) return;
    booking.filed = false;
    for (Margin& margin : booking.margins) {
      Kin& kin = *margin.kin;
      std::erase(kin.members, &margin);
      if (kin.members.empty() && kin.reach) {
        std::erase_if(kin_, [&](const auto& each) { return each.get() == &kin; });
      } else if (margin.margin_ns <= kin.least_ns) {
        kin.least_ns = kNever;
        for (const Margin* member : kin.members) kin.least_ns = std::min(kin.least_ns, member->margin_ns);
      }
      margin.kin = nullptr;
    }
  }

  void shrink(int slot) {
    for (const auto& kin : kin_) {
      if (const Ns grown = part_ns(kin->reach, slot) - kin->parts[slot]) grow(*kin, slot, grown);
    }
  }

  // What holds others up: what has begun and is being read, and the chain behind it. `room` is for the two together.
  const Chain& sequence(int slot, Chain& room) const {
    if (read_[slot].empty()) return chains_[slot];
    for (const Held& each : read_[slot]) room.push_back(each.get());
    room.insert(room.end(), chains_[slot].begin(), chains_[slot].end());
    return room;
  }

  Ns part_ns(int64_t reach, int slot) const {
    Chain room;
    return run_ns(sequence(slot, room), reach, true);
  }

  // A slot's bookings may add more, or less; it is nothing to those of the slot, as they never run together.
  void grow(Kin& kin, int slot, Ns grown) {
    kin.parts[slot] += grown;
    kin.used_ns += grown;
    for (Booking* booking : chains_[slot]) {
      for (Margin& margin : booking->margins) {
        if (margin.kin != &kin) continue;
        margin.margin_ns += grown;
        kin.least_ns = std::min(kin.least_ns, margin.margin_ns);
      }
    }
  }

  const std::vector<Chain>& chains_;
  std::vector<std::vector<Held>> read_;  // by slot: have begun, and their prompts are being read
  // The first are those until their first token: prompts are read in the order of admission, so each slot has one before it at most.
  std::vector<std::unique_ptr<Kin>> kin_;
};

}  // namespace zl::deadline
