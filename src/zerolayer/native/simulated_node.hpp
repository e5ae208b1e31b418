// One node on paper: the server's own admission over an engine whose steps take constant times.
//
// Most decisions need no calendar: while nothing is booked, a request starts exactly where a slot is free, its own bounds suit it, and
// everybody's slack bears its chunks. That is the calm path (a lower bound of all slacks is kept, and computed anew when it says no). Whatever
// it cannot grant goes to a calendar that is built from the state, and stays there until nothing is booked any more. Both paths give the same
// decisions: tests/check/test_simulated_node.py compares them on random traces.
#pragma once

#include <cstring>

#include "deadline_admission.hpp"
#include "simulated_engine.hpp"

namespace zl::deadline {

// The limits of every request and the calendar's own.
struct Rules {
  Ns first_token_ns, per_token_ns, end_ns, horizon_ns, grace_ns;
  bool patient;          // the end holds for all tries
  int64_t senders;       // how many clients the requests come from, in turn; 0 = each from its own
  int64_t retries;       // how often a refused request comes back, at the time that it was told
};

enum Fate { kServed, kRefused, kInfeasible };

// `back_ns`: when a refused request is to come back, or -1 for never.
struct Decision {
  Fate fate;
  Ns back_ns;
};

// Requests are numbers; their work stands in `chunks` and `tokens`. Calls come in the order of their times. Without `calm` everything is decided
// by the calendar.
class SimulatedNode : public SimulatedEngine {
 public:
  SimulatedNode(const Engine& engine, const Rules& rules, Column chunks, Column tokens, bool calm)
      : SimulatedEngine(engine, std::move(chunks), std::move(tokens)), rules_(rules), calm_(calm && rules.per_token_ns >= prices_.stall_ns) {}

  SimulatedNode(const SimulatedNode&) = delete;
  SimulatedNode& operator=(const SimulatedNode&) = delete;

  // A new request.
  Decision offer(int64_t request, Ns at) {
    if (exact_) {
      advance(at);
    } else if (steps_ < last_) {
      jump(at);
    }
    if (!exact_ && calm_) {
      if (free_.empty()) {
        if (!rules_.retries && fits_idle(request, rules_.end_ns)) return {kRefused, -1};
      } else if (calmly(request, at)) {
        return {kServed, 0};
      }
    }
    return ask(request, at, 0, at);
  }

  // The same by the server's admission. `attempt` counts from 0, `since` is the time of the first one.
  Decision ask(int64_t request, Ns at, int64_t attempt, Ns since) {
    advance(at);
    if (!exact_) build(at);
    now_ = at;
    const Ns end = rules_.patient ? rules_.end_ns - (at - since) : rules_.end_ns;
    if (end <= 0) return {kRefused, -1};
    asker(request, attempt);
    if (attempt >= rules_.retries && free_.empty() && fits_idle(request, end) && !admission_->tickets.match(asker_, asker_key_, at, at)) {
      return {kRefused, -1};  // nothing but a refusal can come of a last attempt without a slot: nothing is booked for it then
    }
    const Work work = work_of(request);
    const Limits limits{rules_.first_token_ns, rules_.per_token_ns, end, rules_.patient ? end : kNever};
    Wish wish{work, work, work, limits, Tier::standard, asker_key_};
    Answer answer = admission_->ask(wish, asker_, at);
    if (answer.kind == Kind::granted) {
      if (calendar_->confirm(answer.slot, work, at)) {
        start(answer.slot, request, at, answer.due_ns);
        if (answer.booked) quiet_after_ = std::max(quiet_after_, last_);
        return {kServed, 0};
      }
      calendar_->release(answer.slot);
      answer = admission_->refuse_longer(wish, asker_, at);
    }
    switch (answer.kind) {
      case Kind::busy: {
        const Ns wait_ms = std::max<Ns>(1, answer.start_ns > at ? (answer.start_ns - at + kMs - 1) / kMs : 0);
        return {kRefused, attempt < rules_.retries ? at + wait_ms * kMs : -1};
      }
      case Kind::infeasible:
        return {kInfeasible, 0};
      case Kind::held:
        held_.emplace_back(answer.booking, request);
        return {kServed, 0};
      default:
        return {kRefused, -1};
    }
  }

  // Lets time go on to `at`.
  void advance(Ns at) {
    if (!exact_) {
      if (steps_ < last_) jump(at);
      return;
    }
    while (true) {
      if (const int64_t count = uneventful(at); count > 0) {
        step(border_ + count * decode_, count);
        continue;
      }
      const Ns next = border_ + decode_ + (lead_ || !pending_ ? 0 : extra_);
      Ns wake_ns = kNever;
      for (const auto& [booking, request] : held_) {
        if (booking->start_ns > now_) wake_ns = std::min(wake_ns, booking->start_ns);
      }
      if (steps_ < last_ && next <= std::min(wake_ns, at)) {
        step(next, 1);
      } else if (wake_ns <= at) {
        now_ = wake_ns;
        wake();
      } else {
        break;
      }
    }
    now_ = at;
    if (calm_ && held_.empty() && calendar_->booked().empty() && steps_ >= quiet_after_) {
      exact_ = false;
      slack_ = least_slack();
    }
  }

 private:
  static constexpr Ns kMs = 1'000'000;
  static constexpr Ns kAny = Ns{1} << 60;

  // Starts it without a calendar, if that may be.
  bool calmly(int64_t request, Ns at) {
    const int64_t chunks = (*chunks_)[request];
    const Ns more = chunks * chunk_ns_, due = at + rules_.end_ns;
    const bool busy = free() < engine_.slots;
    const int64_t steps = pending_ + chunks;
    const Ns first = (busy ? border_ : at) + prices_.reserve_ns + steps * chunk_ns_ + (kJoinSteps + steps) * prices_.step_ns;
    const Ns end = first + ((*tokens_)[request] - 1) * prices_.step_ns;
    if (first > at + rules_.first_token_ns || end > due) return false;
    if (!busy) {
      slack_ = kNever;
    } else if (slack_ < more) {
      slack_ = least_slack();
    }
    if (slack_ < more) return false;
    slack_ = std::min(slack_ - more, due - end);
    const int slot = free_.back();
    free_.pop_back();
    add(slot, request, at, due);
    if (admission_) admission_->began_unbooked();
    return true;
  }

  static void write(std::string& text, int64_t number) {
    text.resize(sizeof number);
    std::memcpy(text.data(), &number, sizeof number);
  }

  // Sets who asks, and the key of the request.
  void asker(int64_t request, int64_t attempt) {
    write(asker_.credential, rules_.senders ? request % rules_.senders : request);
    write(asker_key_, request);
    asker_.retry = attempt > 0 ? Retry::yes : Retry::no;
    asker_.last = attempt >= rules_.retries;
  }

  // Whether an idle node could promise it: a request that will not come back is then refused, not infeasible.
  bool fits_idle(int64_t request, Ns end_ns) const {
    const Work work = work_of(request);
    const Ns first = work.first_ns(prices_);
    return first <= rules_.first_token_ns && first + (work.tokens - 1) * prices_.step_ns <= end_ns;
  }

  // How many steps until `at`, or until a slot is free, carry no chunk and can let nobody begin.
  int64_t uneventful(Ns at) const {
    if (lead_ || pending_ || steps_ >= last_) return 0;
    Ns until = at;
    for (const auto& [booking, request] : held_) {
      if (!free_.empty() && booking->start_ns <= now_) return 0;
      until = std::min(until, booking->start_ns > now_ ? booking->start_ns : booking->terms.due_ns());
    }
    return until < border_ ? 0 : std::min((until - border_) / decode_, running_[0].done - steps_);
  }

  // The exact path.

  void step(Ns ended_ns, int64_t count) {
    int slot = -1;
    if (lead_) {
      lead_ = 0;
    } else if (pending_) {
      pending_--;
      slot = order_.front().first;
      if (!--order_.front().second) order_.pop_front();
    }
    steps_ += count;
    border_ = now_ = ended_ns;
    calendar_->on_step(slot, ended_ns, count);
    while (!running_.empty() && running_[0].done <= steps_) {
      const Running each = pop();
      ended.push_back({each.request, each.start_ns, ended_ns, each.due_ns});
      calendar_->release(each.slot);
    }
    if (!held_.empty()) wake();
  }

  void wake() {
    int no_shows = 0;
    for (size_t place = 0; place < held_.size();) {
      const auto [booking, request] = held_[place];
      const int slot = free_.empty() ? -1 : admission_->resume(*booking, now_, no_shows);
      if (slot >= 0) {
        calendar_->confirm(slot, booking->work, now_);
        start(slot, request, now_, booking->terms.due_ns());
        quiet_after_ = std::max(quiet_after_, last_);
      } else if (now_ >= booking->terms.due_ns()) {
        admission_->forget(*booking);
        ended.push_back({request, now_, kNever, booking->terms.due_ns()});
      } else {
        place++;
        continue;
      }
      held_.erase(held_.begin() + ptrdiff_t(place));
    }
  }

  void start(int slot, int64_t request, Ns at, Ns due) {
    std::erase(free_, slot);
    add(slot, request, at, due);
    order_.emplace_back(slot, (*chunks_)[request]);
  }

  // A calendar in which runs what runs here. Steps are counted from 0 again: only what is left matters.
  void build(Ns at) {
    now_ = std::min(border_, at);
    calendar_ = std::make_shared<Calendar>(engine_.slots, rules_.grace_ns, rules_.horizon_ns, 0);  // where nothing costs anything: all is accepted
    if (admission_) {
      admission_->move_to(calendar_);
    } else {
      admission_ = std::make_unique<Admission>(calendar_, [this] {
        std::string name;
        write(name, ++drawn_);
        return name;
      });
    }
    order_.clear();
    held_.clear();
    quiet_after_ = 0;
    exact_ = true;
    std::vector<int64_t> left(bound_.size());  // chunks of each slot's prompt that are not read
    for (const Running& each : running_) {
      left[each.slot] = std::clamp<int64_t>(chunk_end_[each.slot] - steps_ - lead_, 0, (*chunks_)[each.request]);
    }
    std::vector<Work> works;
    for (int slot = 0; slot < engine_.slots; slot++) {
      works.push_back({left[slot], 0, 0, bound_[slot] ? done_[slot] - chunk_end_[slot] + 1 : 1});
      const Terms terms{now_, kAny, kAny, kAny, bound_[slot] ? due_[slot] : kNever, false};
      if (calendar_->claim(works[slot], terms, now_) != slot) throw std::logic_error("what runs does not fit its own calendar");
      if (left[slot]) order_.emplace_back(slot, left[slot]);
    }
    for (int slot = 0; slot < engine_.slots; slot++) {
      const Work& work = works[slot];
      if (bound_[slot]) calendar_->confirm(slot, {work.chunks, work.chunks * chunk_ns_, chunk_ns_, work.tokens}, now_);
    }
    std::sort(order_.begin(), order_.end(), [&](const auto& one, const auto& other) { return chunk_end_[one.first] < chunk_end_[other.first]; });
    calendar_->prices = prices_;
    calendar_->on_step(-1, border_, 1);
    for (int slot = 0; slot < engine_.slots; slot++) {
      if (bound_[slot]) calendar_->set_left(slot, latest(slot) - steps_);
    }
    for (int slot : free_) calendar_->release(slot);
  }

  const Rules rules_;
  const bool calm_;
  Ns slack_ = kNever;  // a lower bound of everybody's
  Ns now_ = 0;
  // The exact path: whether there is a calendar, and what only it needs. Admission remembers who comes and who does not.
  bool exact_ = false;
  std::shared_ptr<Calendar> calendar_;
  std::unique_ptr<Admission> admission_;
  int64_t drawn_ = 0;
  std::vector<std::pair<Held, int64_t>> held_;     // booked clients that are here, and their requests
  std::deque<std::pair<int, int64_t>> order_;      // slot and chunks left of prompts, in the order of the steps
  int64_t quiet_after_ = 0;                        // number of the step with which the last booked request ends
  Asker asker_;
  std::string asker_key_;
};

}  // namespace zl::deadline
