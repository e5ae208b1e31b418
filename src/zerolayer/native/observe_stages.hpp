// Where a request's time went, and when the server was busy: sums of monotonic nanoseconds. No Python.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace zl {

enum Stage { kRead, kParse, kGuard, kTokenise, kWait, kPrefill, kDecode, kFrame, kWrite, kStages };

// Of the steps that many requests are in together: each is added once, whoever rides in it.
struct StepSums {
  int64_t wait_ns = 0, arithmetic_ns = 0, last_ns = 0, core_ns = 0;

  void step(int64_t started_ns, int64_t ended_ns, int64_t row_ns) {
    if (started_ns > last_ns) {
      wait_ns += started_ns - last_ns;
      last_ns = started_ns;
    }
    if (ended_ns > last_ns) {
      arithmetic_ns += ended_ns - last_ns;
      last_ns = ended_ns;
    }
    core_ns += row_ns;
  }
};

// One request's account. A time before the last mark adds nothing: clocks read on two threads may cross.
struct StageSums {
  int64_t started_ns = 0, last_ns = 0;
  int64_t spent_ns[kStages] = {};
  int computing = kPrefill;
  const StepSums* shared = nullptr;  // steps that are added here when somebody looks
  int64_t rides = 0;                 // answers of this request that are in them
  StepSums from;                     // the shared sums that are in this account

  void begin(int64_t first_byte_ns) {
    started_ns = last_ns = first_byte_ns;
    computing = kPrefill;
  }

  void add(int stage, int64_t until_ns) {
    if (until_ns <= last_ns) return;
    spent_ns[stage] += until_ns - last_ns;
    last_ns = until_ns;
  }

  void mark(int stage, int64_t now_ns) {
    settle();
    add(stage, now_ns);
  }

  void step(int64_t started_ns, int64_t ended_ns) {
    mark(kWait, started_ns);
    add(computing, ended_ns);
  }

  // Whether these are the first steps that it is in; they are to live as long as it rides.
  bool ride(const StepSums* steps) {
    settle();
    if (++rides != 1) return false;
    shared = steps;
    from = *steps;
    return true;
  }

  // Whether it was in no other of them.
  bool alight() {
    settle();
    if (--rides) return false;
    shared = nullptr;
    return true;
  }

  // Add the shared steps up to now. What lies before the last mark is in the account already.
  void settle() {
    if (!shared || shared->last_ns <= last_ns) return;
    const int64_t wait = shared->wait_ns - from.wait_ns, arithmetic = shared->arithmetic_ns - from.arithmetic_ns;
    const int64_t known = std::min(last_ns - from.last_ns, wait);  // a mark came after the last step that was added
    spent_ns[kWait] += wait - known;
    spent_ns[computing] += arithmetic - (last_ns - from.last_ns - known);
    last_ns = shared->last_ns;
    from = *shared;
  }
};

// Core-nanoseconds that are charged and not yet added up by whose they are: each of the present decode rows was charged `row_ns`, and nobody
// `idle_ns`. All time up to `until_ns` is accounted for.
struct ComputeSums {
  struct Charge {
    int64_t row_ns = 0, chunk_ns = 0;
  };

  int64_t cores = 1, until_ns = 0, row_ns = 0, idle_ns = 0;

  // No step ran since the last one ended.
  void rest(int64_t now_ns) {
    if (now_ns <= until_ns) return;
    idle_ns += (now_ns - until_ns) * cores;
    until_ns = now_ns;
  }

  // A step ran. Of its time a chunk cost `chunk_share`, all of it where there are no rows; what does not divide is the chunk's.
  Charge step(int64_t started_ns, int64_t ended_ns, int64_t rows, double chunk_share) {
    rest(started_ns);
    const int64_t begun = std::max(started_ns, until_ns);
    if (ended_ns <= begun) return {};
    until_ns = ended_ns;
    const int64_t whole = (ended_ns - begun) * cores;
    const int64_t chunk = rows ? int64_t(std::nearbyint(double(whole) * chunk_share)) : whole;
    const int64_t row = rows ? (whole - chunk) / rows : 0;
    row_ns += row;
    return {row, whole - row * rows};
  }
};

// Wall time with at least one request in flight, and the part of it inside steps.
struct BusySums {
  int64_t in_flight = 0, opened_ns = 0, closed_ns = 0, ended_ns = 0, arithmetic_ns = 0;  // ended_ns: of all windows that have ended

  void enter(int64_t now_ns) {
    // A request that starts where another ended may carry a first byte read before that end.
    if (!in_flight++) opened_ns = std::max(now_ns, closed_ns);
  }
  void leave(int64_t now_ns) {
    if (--in_flight) return;
    closed_ns = std::max(now_ns, opened_ns);
    ended_ns += closed_ns - opened_ns;
  }
  // Only the part inside the open, or just closed, window counts.
  void step(int64_t started, int64_t ended) {
    if (!in_flight) ended = std::min(ended, closed_ns);
    arithmetic_ns += std::max<int64_t>(0, ended - std::max(started, opened_ns));
  }
  int64_t busy_ns(int64_t now_ns) const { return ended_ns + (in_flight ? std::max<int64_t>(0, now_ns - opened_ns) : 0); }
};

}  // namespace zl
