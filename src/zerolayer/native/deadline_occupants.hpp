// What runs in the slots, how many steps are left of each, and by when they are done at the latest. Progress is counted in steps, which nobody
// can add to.
#pragma once

#include <stdexcept>

#include "deadline_booking.hpp"

namespace zl::deadline {

class Occupants {
 public:
  explicit Occupants(int slots) : done(slots), due(slots, kNever), claimed_(slots), waits_(slots), strict_(slots, kNever), left_(slots) {}

  int64_t steps = 0;          // completed
  Ns border_ns = 0;           // end of the last one
  std::vector<int64_t> done;  // by slot: number of the step with which it is done; 0: it is free, or not confirmed
  std::vector<Ns> due;        // by slot
  int64_t pending_steps = 0;  // chunks that are admitted and have not run
  Ns pending_ns = 0;          // what they add

  bool busy() const {
    return std::any_of(done.begin(), done.end(), [](int64_t step) { return step != 0; });
  }
  // Whether somebody is claimed, and not with the engine yet.
  bool any_unconfirmed() const { return unconfirmed_ > 0; }
  bool unconfirmed(int slot) const { return waits_[slot]; }

  void take(int slot, const Work& work, const Terms& terms, const Prices& prices) {
    claimed_[slot] = work;
    if (!waits_[slot]) unconfirmed_++;
    waits_[slot] = true;
    left_[slot] = {work.chunks, work.chunk_ns, work.full_ns};
    pending_steps += work.chunks;
    pending_ns += work.chunk_ns;
    due[slot] = terms.due_ns();
    if (terms.per_token_ns < prices.stall_ns) {
      if (strict_[slot] == kNever) any_strict_++;
      strict_[slot] = terms.per_token_ns;
    }
  }

  // The engine gets the request now; returns what was claimed for it.
  Work confirm(int slot, const Work& work) {
    if (!waits_[slot]) throw std::out_of_range("this slot is not claimed");
    forget_claim(slot);
    const Left was = left_[slot];
    left_[slot] = {work.chunks, work.chunk_ns, work.full_ns, work.later_steps()};
    pending_steps += work.chunks - was.chunks;
    pending_ns += work.chunk_ns - was.chunk_ns;
    int64_t behind = 0;
    for (size_t other = 0; unconfirmed_ && other < waits_.size(); other++) behind += waits_[other] ? left_[other].chunks : 0;
    done[slot] = steps + kJoinSteps + pending_steps - behind + work.later_steps();
    return claimed_[slot];
  }

  // What runs there has so many steps left, in a calendar that is made for what runs already.
  void set_left(int slot, int64_t count) { done[slot] = steps + count; }

  // What runs there is cancelled: it is gone at the next border.
  void ending(int slot) {
    due[slot] = kNever;
    if (done[slot]) done[slot] = std::min(done[slot], steps + kJoinSteps);
  }

  void release(int slot) {
    pending_steps -= left_[slot].chunks;
    pending_ns -= left_[slot].chunk_ns;
    left_[slot] = {};
    done[slot] = 0;
    due[slot] = kNever;
    forget_claim(slot);
    if (strict_[slot] != kNever) any_strict_--;
    strict_[slot] = kNever;
  }

  // The first `tokens` of a slot's prompt need no computing: they are attached.
  void skip(int slot, int64_t tokens, int64_t chunk_tokens) {
    Left& left = left_[slot];
    const int64_t skipped = std::min(tokens / chunk_tokens, left.chunks - 1);
    if (skipped <= 0) return;
    left.chunks -= skipped;
    left.chunk_ns -= skipped * left.full_ns;
    pending_steps -= skipped;
    pending_ns -= skipped * left.full_ns;
  }

  // A slot that is confirmed, and of which nothing has run, needs no more than this.
  void shorten(int slot, const Work& work) {
    Left& left = left_[slot];
    const int64_t chunks = std::min(left.chunks, work.chunks);
    const Ns chunk_ns = std::min(left.chunk_ns, work.chunk_ns);
    const int64_t later = std::min(left.later_steps, work.later_steps());
    const int64_t fewer = left.chunks - chunks + left.later_steps - later;
    done[slot] = std::min(done[slot], std::max(done[slot] - fewer, steps + kJoinSteps));
    pending_steps -= left.chunks - chunks;
    pending_ns -= left.chunk_ns - chunk_ns;
    left = {chunks, chunk_ns, left.full_ns, later};
  }

  // So many steps are done; the last one carried a chunk of `prefill_slot`, or -1. Returns whether that was the last chunk.
  bool on_step(int prefill_slot, Ns ended_ns, int64_t count) {
    steps += count;
    border_ns = ended_ns;
    if (prefill_slot < 0 || !left_[prefill_slot].chunks) return false;
    Left& left = left_[prefill_slot];
    const Ns spent = left.chunks > 1 ? left.full_ns : left.chunk_ns;
    left.chunks--;
    left.chunk_ns -= spent;
    pending_steps--;
    pending_ns -= spent;
    if (left.chunks) return false;
    // Its first token is there and each step brings the next one: it has joined, with none of the steps that this might have taken.
    done[prefill_slot] = std::min(done[prefill_slot], steps + left.later_steps);
    return true;
  }

  // Steps until what runs there is done, at most.
  int64_t left(int slot) const { return waits_[slot] ? kJoinSteps + pending_steps + claimed_[slot].later_steps() : done[slot] - steps; }
  // Number of the step with which what runs there is done at the latest; 0 if nothing does.
  int64_t last_step(int slot) const { return waits_[slot] ? steps + left(slot) : done[slot]; }

  // Slots whose streams would notice a foreign chunk.
  std::vector<int> interrupts(const Prices& prices) const {
    std::vector<int> found;
    for (size_t slot = 0; any_strict_ && slot < strict_.size(); slot++) {
      if (strict_[slot] < prices.stall_ns) found.push_back(int(slot));
    }
    return found;
  }

  // The bound of a slot's end without bookings, 0 where it is free. Of the chunks that wait, at most as many can hold it up as it has steps left.
  Ns end(int slot, Ns base_ns, const Prices& prices) const {
    const int64_t last = last_step(slot);
    if (!last) return 0;
    const int64_t left = last - steps;
    const Ns waiting = prices.chunk_ns ? std::min(pending_ns, std::max<int64_t>(0, left) * prices.chunk_ns) : pending_ns;
    return base_ns + prices.reserve_ns + left * prices.step_ns + waiting;
  }

 private:
  struct Left {
    int64_t chunks = 0;
    Ns chunk_ns = 0, full_ns = 0;  // what they add, and what a full one adds
    int64_t later_steps = 0;       // after the last of them
  };

  void forget_claim(int slot) {
    if (waits_[slot]) unconfirmed_--;
    waits_[slot] = false;
  }

  std::vector<Work> claimed_;
  std::vector<char> waits_;
  std::vector<Ns> strict_;  // per_token_ns of streams that no foreign chunk may interrupt
  std::vector<Left> left_;
  int unconfirmed_ = 0, any_strict_ = 0;
};

}  // namespace zl::deadline
