#include "sha256.hpp"

#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace zl {
namespace {

constexpr size_t kBlock = 64;
using State = std::array<uint32_t, 8>;
using Compress = void (*)(State& state, const uint8_t* data, size_t blocks);

// The fractional parts of the square and cube roots of the first primes (FIPS 180-4, 4.2.2 and 5.3.3).
constexpr State kInitial = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
alignas(16) constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t big_endian(const uint8_t* bytes) {
  return uint32_t(bytes[0]) << 24 | uint32_t(bytes[1]) << 16 | uint32_t(bytes[2]) << 8 | bytes[3];
}

void compress_portable(State& state, const uint8_t* data, size_t blocks) {
  for (; blocks; blocks--, data += kBlock) {
    uint32_t w[64];
    for (int t = 0; t < 16; t++) w[t] = big_endian(data + 4 * t);
    for (int t = 16; t < 64; t++) {
      const uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
      const uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
      w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (int t = 0; t < 64; t++) {
      const uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + kRound[t] + w[t];
      const uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const State more = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < state.size(); i++) state[i] += more[i];
  }
}

#if defined(__x86_64__)
// Four rounds take two instructions, which want the state as the halves ABEF and CDGH; four words of the schedule take three.
__attribute__((target("sha,sse4.1"))) void compress_sha(State& state, const uint8_t* data, size_t blocks) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const auto halves = reinterpret_cast<__m128i*>(state.data());
  const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(halves), 0xb1), efgh = _mm_shuffle_epi32(_mm_loadu_si128(halves + 1), 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
  for (; blocks; blocks--, data += kBlock) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; i++) w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data) + i), swap);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
      const __m128i words = _mm_add_epi32(w[i & 3], _mm_load_si128(reinterpret_cast<const __m128i*>(kRound) + i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, words);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(words, 0x0e));
      if (i < 12) {
        const __m128i &w4 = w[(i + 1) & 3], &w8 = w[(i + 2) & 3], &w12 = w[(i + 3) & 3];
        const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[i & 3], w4), _mm_alignr_epi8(w12, w8, 4));
        w[i & 3] = _mm_sha256msg2_epu32(sum, w12);
      }
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(halves, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(halves + 1, _mm_alignr_epi8(dchg, feba, 8));
}

bool has_sha() {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1);
}
#endif

Compress fastest() {
#if defined(__x86_64__)
  if (has_sha()) return compress_sha;
#endif
  return compress_portable;
}

Sha256 digest(Compress compress, std::span<const uint8_t> data) {
  State state = kInitial;
  const size_t whole = data.size() / kBlock, rest = data.size() % kBlock;
  if (whole) compress(state, data.data(), whole);
  uint8_t last[2 * kBlock] = {};
  if (rest) std::memcpy(last, data.data() + whole * kBlock, rest);
  last[rest] = 0x80;
  const size_t blocks = rest < kBlock - 8 ? 1 : 2;
  const uint64_t bits = 8 * uint64_t(data.size());
  for (int i = 0; i < 8; i++) last[blocks * kBlock - 1 - i] = uint8_t(bits >> (8 * i));
  compress(state, last, blocks);
  Sha256 out;
  for (size_t i = 0; i < out.size(); i++) out[i] = uint8_t(state[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

}  // namespace

Sha256 sha256(std::span<const uint8_t> data) {
  static const Compress compress = fastest();
  return digest(compress, data);
}

Sha256 sha256_portable(std::span<const uint8_t> data) { return digest(compress_portable, data); }

}  // namespace zl
