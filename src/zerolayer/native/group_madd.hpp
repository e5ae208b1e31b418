// Products of one group (32 inputs x 16 outputs) of grouped weights by vpmaddubsw: unsigned weights times signed activation bytes.
#pragma once

#include "kernels.hpp"

namespace ZL_ISA {

constexpr int kGroupRows = 2;

struct Group {
  const uint8_t* q;
  bool nibbles;
};

static inline Group load_group(const uint8_t* q, bool nibbles) { return {q, nibbles}; }

// One plane of activation bytes against the outputs of one register. Pair sums stay below 2^15: 8 * 2 * 15 * 64 for nibbles, which are
// therefore added up in 16 bits, 2 * 255 * 64 for bytes, which are not.
template <class Register, class Load, class Splat, class Ops>
static inline Register dot_plane(const Group& g, const int8_t* x, const Load& load_q, const Splat& splat_x, const Ops& ops) {
  Register sum = ops.zero();
  for (int quad = 0; quad < 8; quad++) {
    const Register x4 = splat_x(x + quad * 4);
    if (g.nibbles) sum = ops.add16(sum, ops.maddu(load_q(quad), x4));
    else sum = ops.add32(sum, ops.widen(ops.maddu(load_q(quad), x4)));
  }
  return g.nibbles ? ops.widen(sum) : sum;
}

#if defined(ZL_USE_AVX512)
struct Ops512 {
  __m512i zero() const { return _mm512_setzero_si512(); }
  __m512i maddu(__m512i w, __m512i x) const { return _mm512_maddubs_epi16(w, x); }
  __m512i widen(__m512i a) const { return _mm512_madd_epi16(a, _mm512_set1_epi16(1)); }
  __m512i add16(__m512i a, __m512i b) const { return _mm512_add_epi16(a, b); }
  __m512i add32(__m512i a, __m512i b) const { return _mm512_add_epi32(a, b); }
};
static inline I16 dot_group(const Group& g, const Activations& a, size_t at) {
  const auto weights = [&](int quad) {
    if (!g.nibbles) return _mm512_loadu_si512(g.q + quad * 64);
    const __m512i both = _mm512_loadu_si512(g.q + quad / 2 * 64);
    return _mm512_and_si512(quad % 2 ? _mm512_srli_epi16(both, 4) : both, _mm512_set1_epi8(15));
  };
  const auto x4 = [](const int8_t* p) { int32_t x; memcpy(&x, p, 4); return _mm512_set1_epi32(x); };
  const __m512i hi = dot_plane<__m512i>(g, a.hi + at, weights, x4, Ops512{});
  const __m512i lo = dot_plane<__m512i>(g, a.lo + at, weights, x4, Ops512{});
  return {_mm512_add_epi32(_mm512_slli_epi32(hi, 7), lo)};
}
#else
struct Ops256 {
  __m256i zero() const { return _mm256_setzero_si256(); }
  __m256i maddu(__m256i w, __m256i x) const { return _mm256_maddubs_epi16(w, x); }
  __m256i widen(__m256i a) const { return _mm256_madd_epi16(a, _mm256_set1_epi16(1)); }
  __m256i add16(__m256i a, __m256i b) const { return _mm256_add_epi16(a, b); }
  __m256i add32(__m256i a, __m256i b) const { return _mm256_add_epi32(a, b); }
};
static inline __m256i dot_half(const Group& g, const Activations& a, size_t at, int half) {
  const auto weights = [&](int quad) {
    if (!g.nibbles) return _mm256_loadu_si256((const __m256i*)(g.q + quad * 64 + half * 32));
    const __m256i both = _mm256_loadu_si256((const __m256i*)(g.q + quad / 2 * 64 + half * 32));
    return _mm256_and_si256(quad % 2 ? _mm256_srli_epi16(both, 4) : both, _mm256_set1_epi8(15));
  };
  const auto x4 = [](const int8_t* p) { int32_t x; memcpy(&x, p, 4); return _mm256_set1_epi32(x); };
  const __m256i hi = dot_plane<__m256i>(g, a.hi + at, weights, x4, Ops256{});
  const __m256i lo = dot_plane<__m256i>(g, a.lo + at, weights, x4, Ops256{});
  return _mm256_add_epi32(_mm256_slli_epi32(hi, 7), lo);
}
static inline I16 dot_group(const Group& g, const Activations& a, size_t at) { return {dot_half(g, a, at, 0), dot_half(g, a, at, 1)}; }
#endif

}  // namespace ZL_ISA
