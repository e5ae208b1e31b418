// Records as bytes in memory that a file is mapped to: states of budgets (guard/budget/journal.py says the layout), and requests with
// their hash (guard/ledger/record.py).
#pragma once

#include <bit>
#include <cstring>
#include <span>
#include <string_view>

#include "guard_account.hpp"
#include "sha256.hpp"

namespace zl {

inline constexpr size_t kStateBytes = 64, kStateBody = 52;
inline constexpr size_t kContentBytes = 416, kHashBytes = 32, kStages = 9;

// Writes numbers and names one behind the other.
template <bool kBigEndian>
class Writer {
 public:
  explicit Writer(uint8_t* to) : to_(to) {}
  template <typename Number>
  void number(Number value) {
    for (size_t i = 0; i < sizeof(Number); i++) {
      const size_t shift = 8 * (kBigEndian ? sizeof(Number) - 1 - i : i);
      *to_++ = uint8_t(uint64_t(value) >> shift);
    }
  }
  // What does not fit is the largest that does.
  void capped(uint64_t value) { number(uint32_t(std::min<uint64_t>(value, UINT32_MAX))); }
  void name(std::string_view text, size_t size) {
    const size_t used = std::min(text.size(), size);
    std::memcpy(to_, text.data(), used);
    std::memset(to_ + used, 0, size - used);
    to_ += size;
  }

 private:
  uint8_t* to_;
};

// Adler-32 (RFC 1950) of less than 5552 bytes.
inline uint32_t adler32(std::span<const uint8_t> data) {
  uint32_t a = 1, b = 0;
  for (const uint8_t byte : data) {
    a += byte;
    b += a;
  }
  return (b % 65521) << 16 | (a % 65521);
}

// Where an account stands after a restart: what is lent counts as used, since whether it was only the other node could tell.
inline void write_state(const Account& account, uint8_t* to) {
  std::array<uint8_t, kStateBytes> record{};
  Writer<true> body(record.data() + 4);
  body.name({reinterpret_cast<const char*>(account.id.data()), account.id.size()}, account.id.size());
  body.number(account.requests_debt + (account.requests_per_minute ? account.lent_requests * kUnit : 0));
  body.number(account.tokens_debt + (account.tokens_per_minute ? account.lent_tokens * kUnit : 0));
  body.number(account.at_us);
  body.number(uint32_t(account.day));
  body.number(account.used_us + account.lent_us);
  Writer<true>(record.data()).number(adler32({record.data() + 4, kStateBody}));
  std::memcpy(to, record.data(), kStateBytes);
}

// What the ledger tells of a request, in the order of its record.
struct RequestRecord {
  uint8_t outcome;
  uint16_t status;
  uint32_t flags;
  uint64_t sequence, ended_us;
  std::string_view key_id, tenant, model, request_id, route, code;
  uint64_t prompt_tokens, cached_tokens, completion_tokens, max_tokens, core_ns, first_token_us, deadline_ms;
  std::array<uint64_t, kStages> stages_ns;
};

// Writes a record behind the hash that ends at `to`, with its own hash behind it.
inline void write_request(const RequestRecord& request, uint8_t* to) {
  std::array<uint8_t, kContentBytes> content{};
  Writer<false> record(content.data());
  record.number(uint8_t(1));
  record.number(request.outcome);
  record.number(request.status);
  record.number(request.flags);
  record.number(request.sequence);
  record.number(request.ended_us);
  record.name(request.key_id, 16);
  record.name(request.tenant, 32);
  record.name(request.model, 64);
  record.name(request.request_id, 128);
  record.name(request.route, 24);
  record.name(request.code, 32);
  for (const uint64_t tokens : {request.prompt_tokens, request.cached_tokens, request.completion_tokens, request.max_tokens}) record.capped(tokens);
  record.number(request.core_ns);
  record.capped(request.first_token_us);
  record.capped(request.deadline_ms);
  for (const uint64_t spent_ns : request.stages_ns) record.capped(spent_ns / 1000);
  std::memcpy(to, content.data(), kContentBytes);
  const Sha256 hash = sha256({to - kHashBytes, kHashBytes + kContentBytes});
  std::memcpy(to + kContentBytes, hash.data(), kHashBytes);
}

}  // namespace zl
