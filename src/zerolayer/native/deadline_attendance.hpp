// Who keeps bookings: for senders that let too many lapse a slot is held only until somebody else needs it.
//
// A held slot that nobody comes for is lost, as a seat is for an airline. The shares fade, and each booking that such a sender does redeem
// halves what stands against it, so that a handful makes it believed again.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>

namespace zl::deadline {

class Attendance {
 public:
  struct Seen {
    std::string credential;
    double kept, lapsed;
    bool counts = false;   // it has said at least once that it asks again
    bool by_hand = false;  // it asks again without saying so: each of its attempts is made as a first one
  };

  int64_t kept = 0, lapsed = 0;  // bookings of all senders

  // What is remembered of each sender, the last that changed at the end.
  const std::list<Seen>& seen() const { return order_; }
  // What another process has seen of a sender.
  void remember(const std::string& credential, double kept, double lapsed) {
    enter(credential, 0.0, 0.0, 0.0);
    order_.back().kept = kept;
    order_.back().lapsed = lapsed;
  }

  // Whether a slot may be held for this sender, whoever else comes.
  bool trusts(const std::string& credential) const {
    const auto found = seen_.find(credential);
    if (found == seen_.end()) return true;
    const double kept = found->second->kept, lapsed = found->second->lapsed;
    return kept + lapsed < kEvidence || lapsed <= kTolerated * (kept + lapsed);
  }
  // Whether what this sender says of its attempts means nothing.
  bool by_hand(const std::string& credential) const {
    const auto found = seen_.find(credential);
    return found != seen_.end() && found->second->by_hand;
  }
  // It says that it asks again, for what was `booked` or for something else: what it says of its attempts is true.
  void asks_again(const std::string& credential, bool booked) {
    if (!seen_.contains(credential)) {
      if (!booked) return;  // who never had a booking need not be remembered
      enter(credential, 0.0, 0.0, kFade);
    }
    Seen& sender = *seen_.find(credential)->second;
    sender.counts = true;
    sender.by_hand = false;
  }
  // A booking was redeemed.
  void came(const std::string& credential) {
    kept++;
    enter(credential, 1.0, 0.0, trusts(credential) ? kFade : kForgiven);
  }
  // A booking lapsed; `doubled`: in its time an equal request came that said that it was the first attempt.
  void stayed_away(const std::string& credential, bool doubled = false) {
    lapsed++;
    enter(credential, 0.0, 1.0, kFade);
    Seen& sender = order_.back();
    sender.by_hand = sender.by_hand || (doubled && !sender.counts);
  }

 private:
  static constexpr double kTolerated = 0.2;  // share of bookings that may lapse
  static constexpr double kEvidence = 8.0;   // bookings before anybody is judged
  static constexpr double kFade = 0.97;      // of the past with each new booking
  static constexpr double kForgiven = 0.5;   // of the lapsed ones with each that is redeemed by who is not trusted
  static constexpr size_t kSenders = 4096;   // remembered; the one that was not seen for longest is forgotten

  void enter(const std::string& credential, double kept, double lapsed, double fade) {
    Seen now{credential, kept, lapsed};
    if (const auto found = seen_.find(credential); found != seen_.end()) {
      const Seen& before = *found->second;
      now = {credential, kept + before.kept * kFade, lapsed + before.lapsed * fade, before.counts, before.by_hand};
      order_.erase(found->second);
    }
    order_.push_back(now);
    seen_[credential] = std::prev(order_.end());
    if (seen_.size() <= kSenders) return;
    seen_.erase(order_.front().credential);
    order_.pop_front();
  }

  std::list<Seen> order_;  // by the last change
  std::unordered_map<std::string, std::list<Seen>::iterator> seen_;
};

}  // namespace zl::deadline
