// The integers of one budget and what a request does to them; guard/budget/account.py has the rules, the refusals and what is rare.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace zl {

// Of debt for one request or token: what a limit of one a minute drains in as many microseconds.
inline constexpr int64_t kUnit = 60'000'000;
inline constexpr int64_t kDayUs = 86'400'000'000;

// Limits of 0 are none. Times are Unix microseconds that never run backwards. Limits stay below 2^32, but for compute,
// so that no product of a limit or a count and kUnit leaves 64 bits; a drain is computed in 128.
struct Account {
  std::array<uint8_t, 16> id{};
  int64_t requests_per_minute = 0, tokens_per_minute = 0, concurrent = 0, compute_us_per_day = 0;
  int64_t at_us = 0, day = 0;
  int64_t requests_debt = 0, tokens_debt = 0, used_us = 0;
  int64_t held_requests = 0, held_tokens = 0, held_us = 0, running = 0;
  int64_t lent_requests = 0, lent_tokens = 0, lent_us = 0;  // of what is held: by other nodes

  // Drains the buckets up to now, and begins a new day when there is one.
  void advance(int64_t now_us) {
    const int64_t elapsed = now_us - at_us;
    if (elapsed <= 0) return;
    at_us = now_us;
    requests_debt = drained(requests_debt, requests_per_minute, elapsed);
    tokens_debt = drained(tokens_debt, tokens_per_minute, elapsed);
    if (now_us / kDayUs != day) {
      day = now_us / kDayUs;
      used_us = 0;
    }
  }

  // Holds one request of this size, if all of it is there. False, and nothing is held, if it is not.
  bool claim(int64_t tokens, int64_t compute_us, int64_t now_us) {
    advance(now_us);
    if (requests_per_minute && requests_debt > (requests_per_minute - held_requests - 1) * kUnit) return false;
    if (tokens_per_minute && tokens_debt > (tokens_per_minute - held_tokens - tokens) * kUnit) return false;
    if (concurrent && running >= concurrent) return false;
    if (compute_us_per_day && used_us + held_us + compute_us > compute_us_per_day) return false;
    hold(tokens, compute_us);
    return true;
  }

  void hold(int64_t tokens, int64_t compute_us) {
    held_requests++;
    running++;
    resize(tokens, compute_us);
  }

  // A held request has started: from here on it counts, whatever becomes of it. Whether that is to be kept.
  bool begin() {
    held_requests--;
    if (!requests_per_minute) return false;
    requests_debt += kUnit;
    return true;
  }

  // Changes what is held by these differences.
  void resize(int64_t tokens, int64_t compute_us) {
    held_tokens += tokens;
    held_us += compute_us;
  }

  // A started request has ended: what it held is given back, what it used is poured in. Whether that is to be kept.
  bool finish(int64_t was_tokens, int64_t was_us, int64_t tokens, int64_t compute_us, int64_t now_us) {
    advance(now_us);
    running--;
    resize(-was_tokens, -was_us);
    if (tokens_per_minute) tokens_debt += tokens * kUnit;
    used_us += compute_us;
    return true;
  }

  // A request that never started has gone.
  void forget(int64_t was_tokens, int64_t was_us) {
    running--;
    held_requests--;
    resize(-was_tokens, -was_us);
  }

 private:
  static int64_t drained(int64_t debt, int64_t rate, int64_t elapsed) {
    if (!debt) return 0;
    const __int128 left = __int128(debt) - __int128(rate) * elapsed;
    return left > 0 ? int64_t(left) : 0;
  }
};

}  // namespace zl
