// Which request a promised start belongs to: the same bytes from the same sender, or whoever brings the ticket.
//
// Stock clients know nothing of tickets; they send the same body again after the time that they were told. Equal requests are a multiset: each
// booking serves one of them, whichever comes.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <stdexcept>
#include <unordered_map>

#include "deadline_booking.hpp"

namespace zl::deadline {

inline constexpr Ns kSpacingNs = 5'000'000;       // between two bookings of one sender: one client process cannot wake twice at once
inline constexpr Ns kLapsedNs = 1'000'000'000;    // for so long after its grace a client that comes is told from one that does not
inline constexpr Ns kSecondNs = 1'000'000'000;

enum class Retry { unknown, no, yes };

// Who asks.
struct Asker {
  std::string credential;
  Retry retry = Retry::unknown;  // whether it has asked before
  std::optional<std::string> ticket;
  bool last = false;      // it has no attempt left: nothing need be held for it
  bool reads_ms = true;   // else it is booked on a whole second, so that both headers say the same
};

class Tickets {
 public:
  // `draw` makes the names of bookings.
  Tickets(Ns grace_ns, std::function<std::string()> draw) : grace_ns_(grace_ns), draw_(std::move(draw)) {}

  size_t size() const { return by_ticket_.size(); }

  Booked all() const {
    Booked all;
    for (const auto& [ticket, booking] : by_ticket_) all.push_back(booking);
    return all;
  }

  // How many bookings a sender holds.
  size_t of(const std::string& credential) const {
    const auto found = starts_.find(credential);
    return found == starts_.end() ? 0 : found->second.size();
  }

  // Files a booking under `key`, and gives it its ticket.
  void add(const Held& booking, const Asker& asker, const std::string& key) { file(booking, asker.credential, key, draw_()); }

  // `add` what has its ticket already.
  void file(const Held& booking, const std::string& credential, const std::string& key, const std::string& ticket) {
    booking->credential = credential;
    booking->key = key;
    booking->ticket = ticket;
    by_ticket_[ticket] = booking;
    Booked& alike = by_key_[{credential, key}];
    alike.insert(alike.begin() + ptrdiff_t(first_after(alike, booking->start_ns)), booking);
    auto& starts = starts_[credential];
    starts.insert(std::upper_bound(starts.begin(), starts.end(), booking->start_ns), booking->start_ns);
  }

  // Forgets a booking that was redeemed or void. Raises where there is none.
  void remove(const Booking& booking) {
    if (!by_ticket_.erase(booking.ticket)) throw std::out_of_range("there is no such ticket");
    const auto alike = by_key_.find({booking.credential, booking.key});
    std::erase_if(alike->second, [&](const Held& each) { return each.get() == &booking; });
    if (alike->second.empty()) by_key_.erase(alike);
    const auto starts = starts_.find(booking.credential);
    starts->second.erase(std::lower_bound(starts->second.begin(), starts->second.end(), booking.start_ns));
    if (starts->second.empty()) starts_.erase(starts);
  }

  // The booking of this ticket, if it is this sender's and waits for him.
  Held of_ticket(const std::string& ticket, const std::string& credential) const {
    const auto found = by_ticket_.find(ticket);
    return found != by_ticket_.end() && found->second->credential == credential && !found->second->held ? found->second : nullptr;
  }

  // Nobody has come for it; whoever still does is recognised for a while.
  void lapse(const Booking& booking) {
    lapsed_.push_back({booking.start_ns + grace_ns_ + kLapsedNs, {booking.credential, booking.key}});
    remove(booking);
  }

  // How many of those that lapsed a while ago nobody has come for at all.
  int forget(Ns now) {
    int count = 0;
    for (; !lapsed_.empty() && lapsed_.front().until_ns < now; count++) lapsed_.pop_front();
    return count;
  }

  // Whether this request had a booking that lapsed; it is told once.
  bool comes_late(const Asker& asker, const std::string& key) {
    if (asker.retry == Retry::no) return false;
    const auto found = std::find_if(lapsed_.begin(), lapsed_.end(), [&](const Lapsed& each) {
      return each.key.key == key && each.key.credential == asker.credential;
    });
    if (found == lapsed_.end()) return false;
    lapsed_.erase(found);
    return true;
  }

  // The booking that this request redeems, or comes too early for; none when it is a new request.
  //
  // It has come after `came_ns`, and may have waited since then to be read.
  Held match(const Asker& asker, const std::string& key, Ns now, Ns came_ns) const {
    if (asker.ticket) {
      const Held booking = of_ticket(*asker.ticket, asker.credential);
      if (booking && booking->key == key) return booking;
    }
    if (asker.retry == Retry::no) return nullptr;
    const auto alike = by_key_.find({asker.credential, key});
    if (alike == by_key_.end()) return nullptr;
    Held early;
    for (const Held& booking : alike->second) {
      if (booking->held) continue;
      if (booking->start_ns - booking->early_ns <= now && came_ns <= booking->start_ns + grace_ns_) return booking;
      if (!early && booking->start_ns > now) early = booking;
    }
    // Who has asked before means the same request; who does not say may be another one with the same words.
    return asker.retry == Retry::yes ? early : nullptr;
  }

  // A booking of such a request whose time it is, whoever it was made for.
  Held due(const std::string& credential, const std::string& key, Ns now, Ns came_ns) const {
    Asker silent;
    silent.credential = credential;
    return by_key_.empty() ? nullptr : match(silent, key, now, came_ns);
  }

  // `start_ns`, or the next time after it that keeps the distance and that the client can be told.
  Ns spaced(const Asker& asker, Ns now, Ns start_ns) const {
    const auto found = starts_.find(asker.credential);
    while (true) {
      if (!asker.reads_ms) start_ns = start_ns > now ? now + (start_ns - now + kSecondNs - 1) / kSecondNs * kSecondNs : now - (now - start_ns) / kSecondNs * kSecondNs;
      if (found == starts_.end()) return start_ns;
      const auto& starts = found->second;
      const auto place = std::lower_bound(starts.begin(), starts.end(), start_ns - kSpacingNs + 1);
      if (place == starts.end() || *place >= start_ns + kSpacingNs) return start_ns;
      start_ns = *place + kSpacingNs;
    }
  }

 private:
  struct Key {
    std::string credential, key;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      return std::hash<std::string>{}(key.key) * 31 + std::hash<std::string>{}(key.credential);
    }
  };
  struct Lapsed {
    Ns until_ns;  // until when it is remembered
    Key key;
  };

  Ns grace_ns_;
  std::function<std::string()> draw_;
  std::unordered_map<Key, Booked, Hash> by_key_;
  std::unordered_map<std::string, Held> by_ticket_;
  std::unordered_map<std::string, std::vector<Ns>> starts_;  // by credential, sorted
  std::deque<Lapsed> lapsed_;
};

}  // namespace zl::deadline
