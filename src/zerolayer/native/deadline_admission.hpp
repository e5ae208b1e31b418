// One decision for one request: it starts now, it redeems its booking, or it is refused with what comes next.
//
// Check and reservation are one step. No waiting list: whoever is not started is answered, with one exception, a booked client that comes a
// moment early or finds its slot not quite free; it holds a promise and is held for moments.
#pragma once

#include "deadline_attendance.hpp"
#include "deadline_calendar.hpp"
#include "deadline_tickets.hpp"

namespace zl::deadline {

enum class Tier { flex, standard, priority };

// What a request says about its time, from its arrival on.
struct Limits {
  Ns first_token_ns = 0, per_token_ns = 0, end_ns = 0;
  Ns patience_ns = kNever;  // the same for all its attempts together

  Terms from(Ns now, bool urgent) const {
    return {now, first_token_ns, per_token_ns, end_ns, patience_ns == kNever ? kNever : now + patience_ns, urgent};
  }
};

// What is asked: `least` and `most` are bounds of what the work is found to be when the text is tokenised.
struct Wish {
  Work most, least;
  Work promised;  // the bound by experience, on which it is booked
  Limits limits;
  Tier tier = Tier::standard;
  std::string key;  // route and body
};

enum class Kind { granted, held, busy, beyond_horizon, infeasible };
enum class Needs { first_token, end, per_token };

struct Answer {
  Kind kind = Kind::granted;
  int slot = -1;           // granted
  Ns due_ns = 0;           // granted: the request's deadline
  bool booked = false;     // granted: it redeems a booking
  Held booking;            // held: until `resume` gives its slot
  Ns start_ns = 0;         // busy: when to come again
  std::string ticket;      // busy: of what is booked for it, or none
  Needs needs{};           // infeasible: what takes too long,
  double needed_ns = 0;    // and how long at least,
  Ns limit_ns = 0;         // where the request allows that
  // What is counted beside it.
  int no_shows = 0;
  bool early = false, late = false;
  Ns came_ns = kNever;     // so long after its start a booking was asked for
  bool counts() const { return no_shows || early || late || booked || came_ns != kNever; }
};

class Admission {
 public:
  Admission(std::shared_ptr<Calendar> calendar, std::function<std::string()> draw)
      : tickets(calendar->grace_ns, std::move(draw)), calendar_(std::move(calendar)), most_(kBookedASlot * calendar_->slots) {}

  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  Attendance attendance;
  Tickets tickets;
  Ns told_ns = 0;        // for whom nothing is held, not before that
  Ns heard_ns = kNever;  // whoever came before that has been asked for; never: whoever has come
  bool ends_soon = false;  // somebody who runs has only its last tokens before it

  // Another calendar, in which nothing is booked, while nothing is.
  void move_to(std::shared_ptr<Calendar> calendar) { calendar_ = std::move(calendar); }

  Answer ask(const Wish& wish, const Asker& asker, Ns now) {
    Answer answer;
    answer.no_shows = sweep(now);
    Held booking = booked_for(asker, wish.key, now);
    const Terms terms = wish.limits.from(now, wish.tier == Tier::priority);
    if ((!booking || hurries(wish.limits, booking->terms, now)) && never(wish, answer)) return answer;
    if (booking && booking->start_ns - booking->early_ns <= now) {
      if (suits(*booking, terms, now)) {
        answer.came_ns = now - booking->start_ns;
        redeem(booking, terms, now, answer);
        return answer;
      }
      forget(*booking);  // it is decided anew
      booking = nullptr;
    } else if (booking) {
      answer.early = true;
    } else {
      answer.late = tickets.comes_late(asker, wish.key);
    }
    answer.slot = claim(wish, terms, now);
    if (answer.slot >= 0) {
      began_unbooked();
      if (booking && booking->filed) forget(*booking);  // else it was soft, and gave way to its own client
      answer.due_ns = terms.due_ns();
    } else if (booking) {
      busy(answer, booking->start_ns, booking);
    } else {
      refuse(wish, asker, terms, now, answer);
    }
    return answer;
  }

  // Somebody who just came has started.
  void began_unbooked() {
    in_a_row_ = 0;
    unbooked_ = 0;
  }

  // The slot of a held client as soon as there is one, or -1. Adds to `no_shows`.
  //
  // Where others have only their last tokens before them, whoever can wait for these is held if its prompt would keep them up for longer
  // than it waits for a step. Until `latest_ns` all bounds have room for that.
  int resume(Booking& booking, Ns now, int& no_shows) {
    const Prices& prices = calendar_->prices;
    const bool waits = ends_soon && booking.work.chunk_ns > prices.step_ns && now + prices.stall_ns < booking.latest_ns();
    if (now < booking.start_ns) return -1;
    no_shows += sweep(now);
    const int slot = calendar_->redeem(booking, waits, now);
    if (slot < 0) return -1;
    tickets.remove(booking);
    attendance.came(booking.credential);
    return slot;
  }

  // The refusal of a request whose true length does not fit after all; its slot is released already.
  Answer refuse_longer(const Wish& wish, const Asker& asker, Ns now) {
    Answer answer;
    refuse(wish, asker, wish.limits.from(now, false), now, answer);
    return answer;
  }

  // Its client has gone, or was served without it. The caller holds it: here are its last owners.
  void forget(Booking& booking) {
    calendar_->forget(booking);
    tickets.remove(booking);
  }

  // Forgets what nobody came for. Returns how many of those that lapsed a while ago did not come at all.
  int sweep(Ns now) {
    for (const Held& booking : calendar_->overdue(std::min(now, heard_ns))) {
      attendance.stayed_away(booking->credential, booking->doubled);
      calendar_->forget(*booking);
      tickets.lapse(*booking);
    }
    return tickets.forget(now);
  }

  // Whether it could not be in time on an engine that does nothing else, at typical speed; then `answer` says why.
  bool never(const Wish& wish, Answer& answer) const {
    const Prices& prices = calendar_->prices;
    const Work& work = wish.least;
    const double first = double(work.chunks * prices.step_ns + work.chunk_ns) / prices.rate;
    const double end = first + double(work.later_steps() * prices.step_ns) / prices.rate;
    return longer(Needs::first_token, first, wish.limits.first_token_ns, answer) || longer(Needs::end, end, wish.limits.end_ns, answer) ||
           longer(Needs::per_token, double(prices.step_ns) / prices.rate, wish.limits.per_token_ns, answer);
  }

 private:
  static constexpr double kBookedShare = 0.5;  // of all slot time up to the horizon: bookings must not starve whoever just comes
  static constexpr int kBookedASlot = 3;
  static constexpr double kASender = 0.75;    // of all bookings at most, while others hold some too
  static constexpr double kFlexShare = 0.5;   // of all bookings at most, and it leaves an eighth of the slots to others
  static constexpr int kFlexLeaves = 8;
  static constexpr int kInARow = 16;  // bookings, then one start is left for who just comes

  static bool longer(Needs needs, double needed_ns, Ns limit_ns, Answer& answer) {
    if (!above(needed_ns, limit_ns)) return false;
    answer.kind = Kind::infeasible;
    answer.needs = needs;
    answer.needed_ns = needed_ns;
    answer.limit_ns = limit_ns;
    return true;
  }

  // What this request redeems, or comes too early for; none where it is a new one.
  //
  // Some clients retry by a loop of their own, around an SDK that says each time that it is the first attempt. They are told from others
  // with the same words by what becomes of their bookings.
  Held booked_for(const Asker& asker, const std::string& key, Ns now) {
    const Ns came_ns = std::min(now, heard_ns);
    const Held booking = tickets.match(asker, key, now, came_ns);
    if (asker.retry == Retry::yes) attendance.asks_again(asker.credential, booking != nullptr);
    if (booking || asker.retry != Retry::no) return booking;
    const Held alike = tickets.due(asker.credential, key, now, came_ns);
    if (!alike || attendance.by_hand(asker.credential)) return alike;
    alike->doubled = true;
    return nullptr;
  }

  // Whether a client that comes back allows less time than it did, beyond what is lost on the way.
  bool hurries(const Limits& limits, const Terms& before, Ns now) const {
    return limits.first_token_ns < before.first_token_ns || limits.per_token_ns < before.per_token_ns || now + limits.end_ns < due_before(before, now);
  }
  Ns due_before(const Terms& before, Ns now) const {
    return before.patience_ns == kNever ? now + before.end_ns : before.patience_ns - calendar_->grace_ns;
  }

  // Whether what was booked will do on these terms.
  bool suits(const Booking& booking, const Terms& terms, Ns now) const {
    const Terms& before = booking.terms;
    if (!booking.strict && terms.per_token_ns < std::min(before.per_token_ns, calendar_->prices.stall_ns)) return false;
    const Ns early_ns = std::max<Ns>(0, booking.start_ns - kEarlyNs - now), left_ns = std::max<Ns>(0, booking.latest_ns() - now);  // to be held for
    return (terms.first_token_ns - early_ns >= before.first_token_ns || left_ns + booking.first_ns <= terms.first_token_ns) &&
           (terms.due_ns() - early_ns >= due_before(before, now) || now + left_ns + booking.need_ns <= terms.due_ns());
  }

  static void busy(Answer& answer, Ns start_ns, const Held& booking) {
    answer.kind = Kind::busy;
    answer.start_ns = start_ns;
    if (booking && !booking->soft) answer.ticket = booking->ticket;
  }

  // A slot at once, or -1. Nothing is held against somebody who is here for somebody who may not come.
  int claim(const Wish& wish, const Terms& terms, Ns now) {
    Calendar& calendar = *calendar_;
    if (!calendar.free() || (wish.tier == Tier::flex && calendar.free() <= calendar.slots / kFlexLeaves)) return -1;
    const Work* work = &wish.most;
    int slot = calendar.claim(*work, terms, now);
    if (slot < 0 && wish.least.chunks < work->chunks) {
      work = &wish.least;
      slot = calendar.claim(*work, terms, now);
    }
    if (slot >= 0) return slot;
    const Booked yielding = calendar.in_the_way(*work, terms, now);
    if (yielding.empty()) return -1;
    for (const Held& booking : yielding) forget(*booking);
    return calendar.claim(*work, terms, now);
  }

  void redeem(const Held& booking, const Terms& terms, Ns now, Answer& answer) {
    booking->terms = terms;
    booking->held = true;
    answer.slot = resume(*booking, now, answer.no_shows);
    answer.booked = answer.slot >= 0;
    answer.due_ns = terms.due_ns();
    if (answer.booked) return;
    answer.kind = Kind::held;
    answer.booking = booking;
  }

  // Books, or else tells a time.
  void refuse(const Wish& wish, const Asker& asker, const Terms& terms, Ns now, Answer& answer) {
    Calendar& calendar = *calendar_;
    const bool again = asker.retry == Retry::yes;
    const bool soft = !attendance.trusts(asker.credential);
    crowded_ = crowded_ && !calendar.booked().empty();
    const Room room = unbooked_ && in_a_row_ >= kInARow ? Room::gap : crowded_ ? Room::lent : Room::none;
    if (may_book(wish, asker, soft)) {
      const auto reads = [&](Ns start) { return tickets.spaced(asker, now, start); };
      if (const Held booking = calendar.book(wish.promised, terms, reads, soft, room, again, now)) {
        if (room == Room::gap) {
          began_unbooked();
        } else {
          in_a_row_++;
          if (again && unbooked_) unbooked_--;  // it is one of them
        }
        tickets.add(booking, asker, wish.key);
        busy(answer, booking->start_ns, booking);
        return;
      }
    }
    unbooked_++;
    crowded_ = true;
    const Ns behind = again ? 0 : told_ns;  // who has waited already is not sent to the end
    Ns told = -1;
    if (behind <= now + calendar.horizon_ns) {  // else others were told all that time can hold
      const auto reads = [&](Ns start) { return tickets.spaced(asker, now, std::max(start, behind)); };
      told = calendar.tell(wish.promised, terms, reads, now);
    }
    if (told < 0) {
      answer.kind = Kind::beyond_horizon;
      return;
    }
    if (!asker.last && !again) {  // the next one is told a later time, as slots come free one by one
      told_ns = told + wish.promised.typical_ns(calendar.prices, calendar.slots - 1) / calendar.slots;
    }
    busy(answer, told, nullptr);
  }

  // Whether a slot may be held for this sender, beside all that is booked.
  bool may_book(const Wish& wish, const Asker& asker, bool soft) {
    Calendar& calendar = *calendar_;
    const double most = (wish.tier == Tier::flex ? kFlexShare : 1.0) * most_;
    if (double(calendar.booked().size()) >= most && !soft) {
      if (const Held last = calendar.last_soft()) forget(*last);
    }
    if (asker.last || double(calendar.booked().size()) >= most) return false;
    const size_t mine = tickets.of(asker.credential);
    return double(calendar.booked_ns()) < kBookedShare * calendar.slots * double(calendar.horizon_ns) &&
           (double(mine) < std::max(1.0, kASender * most) || mine == tickets.size());
  }

  std::shared_ptr<Calendar> calendar_;
  int in_a_row_ = 0;  // bookings since somebody started without one, or could have
  int unbooked_ = 0;  // how many were refused without one since then, and have none yet
  bool crowded_ = false;  // not all could be booked since nobody was
  int most_;              // bookings
};

}  // namespace zl::deadline
