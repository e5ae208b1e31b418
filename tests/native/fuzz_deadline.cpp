// Random requests against admission and its calendar, and whole simulations: fuzz_deadline OPERATIONS SEED. For sanitizers; what is decided is
// compared with its specification in tests/guard/deadline/test_specification.py.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "deadline_admission.hpp"
#include "simulated_fleet.hpp"

using namespace zl::deadline;

namespace {

constexpr Ns kMs = 1'000'000;
std::mt19937_64 dice;

int64_t upto(int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(dice); }

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz_deadline: %s\n", what);
  std::abort();
}

// One service: clients that come, come back, leave and are forgotten, in any order.
void serve(int operations) {
  const auto calendar = std::make_shared<Calendar>(int(1 + upto(7)), 250 * kMs, 60'000 * kMs, int(upto(1)));
  int64_t drawn = 0;
  Admission admission(calendar, [&] { return std::to_string(++drawn); });
  Ns now = 1'000 * kMs;
  calendar->prices = {5 * kMs, 10 * kMs, 8 * kMs, 15 * kMs, 1.1};
  std::vector<int> claimed, running;
  Booked held;
  const auto release = [&](int slot) {
    calendar->release(slot);
    std::erase(claimed, slot);
    std::erase(running, slot);
  };
  const auto wish_of = [&](int64_t name) {
    const Work most{1 + upto(3), (1 + upto(3)) * 10 * kMs, 10 * kMs, 1 + upto(60)}, least{1, 5 * kMs, 10 * kMs, most.tokens};
    const Ns patience = upto(3) ? kNever : 2'000 * kMs;
    return Wish{most, least, most, {(60 + upto(5'000)) * kMs, (10 + upto(250)) * kMs, (200 + upto(60'000)) * kMs, patience}, Tier(upto(2)), std::to_string(name)};
  };
  for (int operation = 0; operation < operations; operation++) {
    switch (upto(9)) {
      case 0: case 1: case 2: {
        const Wish wish = wish_of(upto(9));
        Asker asker{std::to_string(upto(3)), Retry(upto(2)), std::nullopt, upto(4) == 0, upto(3) != 0};
        if (!upto(3) && drawn) asker.ticket = std::to_string(1 + upto(drawn));
        const Answer answer = admission.ask(wish, asker, now);
        if (answer.kind == Kind::held) held.push_back(answer.booking);
        if (answer.kind == Kind::granted) claimed.push_back(answer.slot);
        break;
      }
      case 3:
        if (claimed.empty()) break;
        if (const int slot = claimed.back(); calendar->confirm(slot, {1 + upto(3), 15 * kMs, 10 * kMs, 1 + upto(60)}, now)) {
          claimed.pop_back();
          running.push_back(slot);
        } else {
          release(slot);
          admission.refuse_longer(wish_of(upto(9)), {std::to_string(upto(3)), Retry::no, std::nullopt}, now);
        }
        break;
      case 4:
        if (!running.empty()) release(running[size_t(upto(int64_t(running.size()) - 1))]);
        break;
      case 5: case 6:
        now += (1 + upto(20)) * kMs;
        calendar->on_step(running.empty() ? -1 : running[size_t(upto(int64_t(running.size()) - 1))], now, 1 + upto(2));
        break;
      case 7:
        now += upto(300) * kMs;
        for (size_t place = 0; place < held.size(); place++) {
          int no_shows = 0;
          if (const int slot = admission.resume(*held[place], now, no_shows); slot >= 0) {
            claimed.push_back(slot);
            held.erase(held.begin() + ptrdiff_t(place--));
          }
        }
        break;
      case 8:
        if (held.empty() || upto(3)) break;
        admission.forget(*held.back());
        held.pop_back();
        break;
      default:
        if (!running.empty()) calendar->ending(running[0]);
        if (!claimed.empty()) calendar->skip(claimed[0], upto(300), 100);
        calendar->prices.step_ns = (1 + upto(20)) * kMs;
        calendar->is_feasible(now);
        calendar->next_open_ms(calendar->slots, now);
    }
  }
  while (!held.empty()) {
    admission.forget(*held.back());
    held.pop_back();
  }
  for (int slot = 0; slot < calendar->slots; slot++) calendar->release(slot);
  admission.sweep(now + 200'000 * kMs);
  require(calendar->free() == calendar->slots && calendar->booked().empty() && !calendar->booked_ns() && !admission.tickets.size(),
          "something is left behind");
}

// A fleet: everybody is counted once.
void simulate(int64_t requests) {
  Numbers chunks, tokens, arrivals;
  Ns at = 0;
  for (int64_t request = 0; request < requests; request++) {
    chunks.push_back(1 + upto(3));
    tokens.push_back(1 + upto(60));
    arrivals.push_back(at += upto(120) * kMs);
  }
  const Engine engine{int(1 + upto(7)), 10 * kMs, 25 * kMs, 16 * kMs, {11 * kMs, 16 * kMs, 5 * kMs, 25 * kMs, 1.05}};
  const Rules rules{(60 + upto(5'000)) * kMs, (10 + upto(250)) * kMs, (200 + upto(60'000)) * kMs, 60'000 * kMs, 250 * kMs, upto(1) == 0, upto(3), upto(3)};
  SimulatedFleet fleet(int(1 + upto(2)), engine, rules, std::make_shared<const Numbers>(chunks), std::make_shared<const Numbers>(tokens));
  fleet.send(arrivals, 0, requests);
  const Outcome outcome = fleet.finish();
  require(outcome.at_once + outcome.booked + outcome.late + outcome.refused + outcome.infeasible == requests, "somebody is lost");
}

}  // namespace

int main(int count, char** given) {
  const int operations = count > 1 ? std::atoi(given[1]) : 100'000;
  dice.seed(count > 2 ? std::strtoull(given[2], nullptr, 10) : 1);
  for (int done = 0; done < operations; done += 1'000) {
    serve(1'000);
    simulate(100);
  }
  std::puts("fuzz_deadline: ok");
}
