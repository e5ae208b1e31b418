// Throws random requests and accounts at the guard's records: what the sanitizers see is the test, and that both ways to hash agree.
//
//   fuzz_guard [CALLS] [SEED]     (built with sanitizers by `make sanitize`)
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include "guard_records.hpp"

namespace {

class Fuzzer {
 public:
  explicit Fuzzer(uint64_t seed) : random_(seed) {}

  void call() {
    hash();
    request();
    account();
  }

 private:
  // Mostly small, now and then any number of 64 bits.
  uint64_t any() { return random_() % 8 ? random_() % 1000 : random_(); }
  std::string text() {
    std::string made(random_() % 200, '\0');
    for (char& byte : made) byte = char(random_());
    return made;
  }

  void hash() {
    const std::string data = text() + text() + text();
    const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(data.data()), data.size());
    if (zl::sha256(bytes) != zl::sha256_portable(bytes)) fail("two hashes of the same bytes differ");
  }

  // Into memory of exactly its size, behind 32 bytes of a hash.
  void request() {
    constexpr size_t kRecord = zl::kContentBytes + zl::kHashBytes;
    const auto memory = std::make_unique<uint8_t[]>(zl::kHashBytes + kRecord);
    const std::string names[] = {text(), text(), text(), text(), text(), text()};
    zl::RequestRecord record{uint8_t(any()), uint16_t(any()), uint32_t(any()), any(), any(), names[0], names[1], names[2], names[3], names[4],
                             names[5],       any(),           any(),           any(), any(), any(),    any(),    any(),    {}};
    for (uint64_t& spent : record.stages_ns) spent = any();
    zl::write_request(record, memory.get() + zl::kHashBytes);
    const zl::Sha256 hash = zl::sha256({memory.get(), zl::kHashBytes + zl::kContentBytes});
    if (std::memcmp(hash.data(), memory.get() + zl::kHashBytes + zl::kContentBytes, hash.size())) fail("a record has another hash");
  }

  // Within the limits that the Python above it keeps, nothing overflows, and what is held is given back.
  void account() {
    zl::Account account{};
    account.requests_per_minute = int64_t(random_() % (uint64_t(1) << 32));
    account.tokens_per_minute = int64_t(random_() % (uint64_t(1) << 32));
    account.concurrent = int64_t(random_() % 65536);
    account.compute_us_per_day = int64_t(random_() % (uint64_t(1) << 62));
    int64_t now = int64_t(random_() % (uint64_t(1) << 52));
    account.at_us = now;
    for (int i = 0; i < 20; i++) {
      now += int64_t(random_() % (uint64_t(1) << (random_() % 48)));
      const int64_t tokens = int64_t(random_() % (uint64_t(1) << 30)), compute_us = int64_t(random_() % (uint64_t(1) << 40));
      if (!account.claim(tokens, compute_us, now)) continue;
      account.begin();
      account.finish(tokens, compute_us, tokens / 2, compute_us / 2, now + 5);
      if (account.held_requests || account.held_tokens || account.held_us || account.running) fail("something stays held");
    }
    const auto memory = std::make_unique<uint8_t[]>(zl::kStateBytes);
    zl::write_state(account, memory.get());
  }

  [[noreturn]] static void fail(const char* why) {
    std::fprintf(stderr, "%s\n", why);
    std::abort();
  }

  std::mt19937_64 random_;
};

}  // namespace

int main(int count, char** values) {
  const long calls = count > 1 ? std::atol(values[1]) : 100'000;
  Fuzzer fuzzer(count > 2 ? std::strtoull(values[2], nullptr, 10) : 1);
  for (long i = 0; i < calls; i++) fuzzer.call();
  std::printf("%ld calls of the guard\n", calls);
}
