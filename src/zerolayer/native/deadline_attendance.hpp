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
    const auto& [name, kept, lapsed] = *found->second;
    return kept + lapsed < kEvidence || lapsed <= kTolerated * (kept + lapsed);
  }
  // A booking was redeemed.
  void came(const std::string& credential) {
    kept++;
    enter(credential, 1.0, 0.0, trusts(credential) ? kFade : kForgiven);
  }
  // A booking lapsed.
  void stayed_away(const std::string& credential) {
    lapsed++;
    enter(credential, 0.0, 1.0, kFade);
  }

 private:
  static constexpr double kTolerated = 0.2;  // share of bookings that may lapse
  static constexpr double kEvidence = 8.0;   // bookings before anybody is judged
  static constexpr double kFade = 0.97;      // of the past with each new booking
  static constexpr double kForgiven = 0.5;   // of the lapsed ones with each that is redeemed by who is not trusted
  static constexpr size_t kSenders = 4096;   // remembered; the one that was not seen for longest is forgotten

  void enter(const std::string& credential, double kept, double lapsed, double fade) {
    if (const auto found = seen_.find(credential); found != seen_.end()) {
      kept += found->second->kept * kFade;
      lapsed += found->second->lapsed * fade;
      order_.erase(found->second);
    }
    order_.push_back({credential, kept, lapsed});
    seen_[credential] = std::prev(order_.end());
    if (seen_.size() <= kSenders) return;
    seen_.erase(order_.front().credential);
    order_.pop_front();
  }

  std::list<Seen> order_;  // by the last change
  std::unordered_map<std::string, std::list<Seen>::iterator> seen_;
};

}  // namespace zl::deadline
