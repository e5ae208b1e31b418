// The engine of a simulated node: arithmetic. Slots run in lockstep, a step carries at most one chunk of one prompt, and all steps of a kind
// take the same, so any number of them is jumped at once.
#pragma once

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "deadline_booking.hpp"

namespace zl::deadline {

// What steps take, without and with a chunk, and how the server prices them.
struct Engine {
  int slots;
  Ns decode_ns, mixed_ns, chunk_ns;  // chunk_ns: the price of a full chunk
  Prices prices;
};

struct Served {
  int64_t request;
  Ns start_ns, end_ns, due_ns;
};

using Numbers = std::vector<int64_t>;
using Column = std::shared_ptr<const Numbers>;

class SimulatedEngine {
 public:
  std::vector<Served> ended;

  // Slots that nobody holds, as of the last call.
  int free() const { return int(free_.size()); }
  // Steps until the first slot is free.
  int64_t next_step() const { return running_.empty() ? 0 : running_[0].done - steps_; }

 protected:
  SimulatedEngine(const Engine& engine, Column chunks, Column tokens)
      : engine_(engine), prices_(engine.prices), chunk_ns_(engine.chunk_ns), decode_(engine.decode_ns), extra_(engine.mixed_ns - engine.decode_ns),
        chunks_(std::move(chunks)), tokens_(std::move(tokens)), bound_(engine.slots), done_(engine.slots), due_(engine.slots, kNever), chunk_end_(engine.slots) {
    if (engine.slots < 1 || decode_ < 1 || extra_ < 0) throw std::invalid_argument("a node has slots, and its steps take time");
    for (int slot = engine.slots; slot-- > 0;) free_.push_back(slot);
  }

  struct Running {
    int64_t done;  // the step with which it ends
    int slot;
    int64_t request;
    Ns start_ns, due_ns;
    // Of a heap whose first one ends first.
    bool operator<(const Running& other) const { return done != other.done ? done > other.done : slot > other.slot; }
  };

  Work work_of(int64_t request) const {
    const int64_t chunks = (*chunks_)[request];
    return {chunks, chunks * chunk_ns_, chunk_ns_, (*tokens_)[request]};
  }

  // All steps that end until `at`.
  void jump(Ns at) {
    Ns left = at - border_;
    const int64_t lead = lead_, pending = pending_;
    if (lead) {
      if (left < decode_) return;
      left -= decode_;
    }
    if (left < 0) return;
    const int64_t run = pending ? std::min(pending, left / (decode_ + extra_)) : 0;
    int64_t count = lead + run;
    if (run == pending) count = std::min(count + (left - run * (decode_ + extra_)) / decode_, last_ - steps_);
    if (!count) return;
    const int64_t steps = steps_;
    const Ns border = border_;
    lead_ = 0;
    pending_ -= run;
    steps_ += count;
    border_ += count * decode_ + run * extra_;
    while (!running_.empty() && running_[0].done <= steps_) {
      const Running each = pop();
      const int64_t passed = each.done - steps;
      ended.push_back({each.request, each.start_ns, border + passed * decode_ + std::min(pending, std::max<int64_t>(0, passed - lead)) * extra_, each.due_ns});
    }
  }

  // A request joins at the next border.
  void add(int slot, int64_t request, Ns at, Ns due) {
    if (steps_ >= last_) {  // at rest: it begins at once
      border_ = at;
    } else if (!pending_) {
      lead_ = 1;
    }
    const int64_t tokens = (*tokens_)[request] - 1;
    pending_ += (*chunks_)[request];
    chunk_end_[slot] = steps_ + lead_ + pending_;
    const int64_t done = chunk_end_[slot] + tokens;
    last_ = std::max(last_, done);
    bound_[slot] = steps_ + kJoinSteps + pending_ + tokens;
    done_[slot] = done;
    due_[slot] = due;
    running_.push_back({done, slot, request, at, due});
    std::push_heap(running_.begin(), running_.end());
  }

  // The one that ends first; its slot is free.
  Running pop() {
    std::pop_heap(running_.begin(), running_.end());
    const Running each = running_.back();
    running_.pop_back();
    bound_[each.slot] = 0;
    free_.push_back(each.slot);
    return each;
  }

  // The step with which a slot is done, as far as the server knows: exactly, once its prompt is read.
  int64_t latest(int slot) const { return steps_ < chunk_end_[slot] ? bound_[slot] : done_[slot]; }

  // How much later everybody's bound could be.
  Ns least_slack() const {
    const Ns base = border_ + prices_.reserve_ns, pending = pending_ * chunk_ns_;
    Ns least = kNever;
    for (size_t slot = 0; slot < bound_.size(); slot++) {
      if (!bound_[slot]) continue;
      const int64_t left = latest(int(slot)) - steps_;
      least = std::min(least, due_[slot] - base - left * prices_.step_ns - std::min(pending, left * chunk_ns_));
    }
    return least;
  }

  const Engine engine_;
  const Prices prices_;
  const Ns chunk_ns_;
  const Ns decode_, extra_;
  const Column chunks_, tokens_;
  std::vector<int> free_;
  // Steps done, time of the last border, whether the step in flight began without the chunks that wait, how many chunks wait, and the step with
  // which all is done.
  int64_t steps_ = 0;
  Ns border_ = 0;
  int64_t lead_ = 0, pending_ = 0, last_ = 0;
  std::vector<Running> running_;    // a heap
  std::vector<int64_t> bound_;      // by slot: the step with which it is done at the latest when its prompt is not read, 0 = free
  std::vector<int64_t> done_;       // by slot: the step with which it is done
  std::vector<Ns> due_;
  std::vector<int64_t> chunk_end_;  // the step with which its prompt is read
};

}  // namespace zl::deadline
