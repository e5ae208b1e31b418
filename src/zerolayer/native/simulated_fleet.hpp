// Nodes of one kind on paper, and what becomes of requests on them.
//
// A request goes to the next node with a free slot, or to the one whose slot is free first; a refused one comes back there at the promised time.
#pragma once

#include "simulated_node.hpp"

namespace zl::deadline {

// Counts are requests; those that end in time, but for `late`.
struct Outcome {
  int64_t at_once = 0, booked = 0, late = 0, refused = 0, infeasible = 0;
  Ns last_ns = 0, busy_ns = 0;  // the last end, and slot time
  int64_t tokens = 0;
};

class SimulatedFleet {
 public:
  SimulatedFleet(int nodes, const Engine& engine, const Rules& rules, Column chunks, Column tokens)
      : tokens_(tokens), again_(tokens->size()) {
    if (nodes < 1 || chunks->size() != tokens->size()) throw std::invalid_argument("a fleet has nodes, and requests have both lengths");
    for (int number = 0; number < nodes; number++) nodes_.push_back(std::make_unique<SimulatedNode>(engine, rules, chunks, tokens, true));
  }

  SimulatedFleet(const SimulatedFleet&) = delete;
  SimulatedFleet& operator=(const SimulatedFleet&) = delete;

  // New requests, from number `first` on, each at its time. False as soon as more than `most` are refused for good.
  bool send(const std::vector<int64_t>& arrivals_ns, int64_t first, int64_t most) {
    if (first < 0 || size_t(first) + arrivals_ns.size() > tokens_->size()) throw std::out_of_range("there are not so many requests");
    for (const Ns at : arrivals_ns) {
      retry_until(at);
      SimulatedNode& node = choose(at);
      settle(node.offer(first, at), {at, first, 0, at, &node});
      first++;
      if (outcome_.refused + outcome_.infeasible > most) return false;
    }
    return true;
  }

  // Lets everybody come back and end.
  Outcome finish() {
    constexpr Ns kEnd = Ns{1} << 61;
    retry_until(kEnd);
    Outcome outcome = outcome_;
    for (const auto& node : nodes_) {
      node->advance(kEnd);
      for (const Served& each : node->ended) {
        if (each.end_ns > each.due_ns) {
          outcome.late++;
          continue;
        }
        (again_[size_t(each.request)] ? outcome.booked : outcome.at_once)++;
        outcome.last_ns = std::max(outcome.last_ns, each.end_ns);
        outcome.busy_ns += each.end_ns - each.start_ns;
        outcome.tokens += (*tokens_)[size_t(each.request)];
      }
    }
    return outcome;
  }

 private:
  struct Attempt {
    Ns at_ns;
    int64_t request, number;
    Ns since_ns;
    SimulatedNode* node;
    // Of a heap whose first one comes first.
    bool operator<(const Attempt& other) const { return at_ns != other.at_ns ? at_ns > other.at_ns : request > other.request; }
  };

  // Sends again whoever was told to come until `at`.
  void retry_until(Ns at) {
    while (!back_.empty() && back_[0].at_ns <= at) {
      std::pop_heap(back_.begin(), back_.end());
      const Attempt each = back_.back();
      back_.pop_back();
      settle(each.node->ask(each.request, each.at_ns, each.number, each.since_ns), each);
    }
  }

  void settle(const Decision& decision, Attempt attempt) {
    if (decision.fate == kServed) return;
    again_[size_t(attempt.request)] = true;
    if (decision.fate == kInfeasible) {
      outcome_.infeasible++;
    } else if (decision.back_ns < 0) {
      outcome_.refused++;
    } else {
      attempt.at_ns = decision.back_ns;
      attempt.number++;
      back_.push_back(attempt);
      std::push_heap(back_.begin(), back_.end());
    }
  }

  // The next node with a free slot, in turn; else the one that has one first.
  SimulatedNode& choose(Ns at) {
    if (nodes_.size() == 1) return *nodes_[0];
    for (size_t tried = 0; tried < nodes_.size(); tried++) {
      turn_ = (turn_ + 1) % nodes_.size();
      nodes_[turn_]->advance(at);
      if (nodes_[turn_]->free()) return *nodes_[turn_];
    }
    const auto sooner = [](const auto& one, const auto& other) { return one->next_step() < other->next_step(); };
    return **std::min_element(nodes_.begin(), nodes_.end(), sooner);
  }

  Column tokens_;
  std::vector<std::unique_ptr<SimulatedNode>> nodes_;
  std::vector<Attempt> back_;  // a heap
  std::vector<char> again_;    // by request: it was refused at first
  Outcome outcome_;
  size_t turn_ = 0;
};

}  // namespace zl::deadline
