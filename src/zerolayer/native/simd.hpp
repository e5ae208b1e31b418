// Sixteen float lanes, the same bits on every processor.
//
// Rules of this file, and of every header that a kernels_*.cpp includes:
//  1. Everything lives in ZL_ISA, a namespace of its own per kernel set: an inline function that two translation units compile for
//     different processors must never be merged by the linker. For the same reason no std:: template is used here.
//  2. Only operations that IEEE 754 defines exactly: add, mul, div, sqrt, fma, conversions with round-to-nearest-even. The compiler
//     may not contract a*b+c by itself (-ffp-contract=off); where an fma is meant, fma() says so.
//  3. Reductions have one fixed order, whatever the register width: lanes i and i+8, then i+4, i+2, i+1.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(ZL_USE_AVX512) || defined(ZL_USE_AVX2)
#include <immintrin.h>
#endif

namespace ZL_ISA {

#if defined(ZL_USE_AVX512)

struct F16 { __m512 v; };
struct I16 { __m512i v; };  // sixteen int32 lanes
using M16 = __mmask16;

static inline F16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
static inline void store(float* p, F16 a) { _mm512_storeu_ps(p, a.v); }
static inline F16 splat(float x) { return {_mm512_set1_ps(x)}; }
static inline F16 add(F16 a, F16 b) { return {_mm512_add_ps(a.v, b.v)}; }
static inline F16 sub(F16 a, F16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
static inline F16 mul(F16 a, F16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
static inline F16 div(F16 a, F16 b) { return {_mm512_div_ps(a.v, b.v)}; }
static inline F16 fma(F16 a, F16 b, F16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
static inline F16 max(F16 a, F16 b) { return {_mm512_max_ps(a.v, b.v)}; }
static inline F16 min(F16 a, F16 b) { return {_mm512_min_ps(a.v, b.v)}; }
static inline F16 abs(F16 a) { return {_mm512_abs_ps(a.v)}; }
static inline F16 load_half(const uint8_t* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p))}; }  // 16 IEEE halves
static inline I16 load(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
static inline void store(int32_t* p, I16 a) { _mm512_storeu_si512(p, a.v); }
static inline F16 to_float(I16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
static inline I16 to_int(F16 a) { return {_mm512_cvtps_epi32(a.v)}; }  // |a| < 2^22
static inline F16 pow2(I16 n) { return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n.v, _mm512_set1_epi32(127)), 23))}; }
static inline M16 less(F16 a, F16 b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }
static inline M16 first_lanes(int n) { return n >= 16 ? M16(0xffff) : M16((1u << n) - 1); }
static inline F16 select(M16 m, F16 yes, F16 no) { return {_mm512_mask_blend_ps(m, no.v, yes.v)}; }
static inline void store_bytes(int8_t* p, I16 a) { _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(a.v)); }
static inline void store_words(int16_t* p, I16 a) { _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16(a.v)); }
static inline I16 add(I16 a, int32_t b) { return {_mm512_add_epi32(a.v, _mm512_set1_epi32(b))}; }
static inline I16 add(I16 a, I16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
static inline I16 sub(I16 a, I16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
static inline I16 shift_right_7(I16 a) { return {_mm512_srai_epi32(a.v, 7)}; }
static inline I16 shift_left_7(I16 a) { return {_mm512_slli_epi32(a.v, 7)}; }
static inline I16 zero_int() { return {_mm512_setzero_si512()}; }

#elif defined(ZL_USE_AVX2)

struct F16 { __m256 lo, hi; };
struct I16 { __m256i lo, hi; };
struct M16 { __m256 lo, hi; };

static inline F16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void store(float* p, F16 a) { _mm256_storeu_ps(p, a.lo); _mm256_storeu_ps(p + 8, a.hi); }
static inline F16 splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline F16 add(F16 a, F16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
static inline F16 sub(F16 a, F16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
static inline F16 mul(F16 a, F16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
static inline F16 div(F16 a, F16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
static inline F16 fma(F16 a, F16 b, F16 c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
static inline F16 max(F16 a, F16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
static inline F16 min(F16 a, F16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
static inline F16 abs(F16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
static inline F16 load_half(const uint8_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 16)))};
}
static inline I16 load(const int32_t* p) { return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)(p + 8))}; }
static inline void store(int32_t* p, I16 a) { _mm256_storeu_si256((__m256i*)p, a.lo); _mm256_storeu_si256((__m256i*)(p + 8), a.hi); }
static inline F16 to_float(I16 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
static inline I16 to_int(F16 a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
static inline F16 pow2(I16 n) {
  const __m256i bias = _mm256_set1_epi32(127);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.lo, bias), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.hi, bias), 23))};
}
static inline M16 less(F16 a, F16 b) { return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)}; }
static inline M16 first_lanes(int n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane)),
          _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), lane))};
}
static inline F16 select(M16 m, F16 yes, F16 no) { return {_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)}; }
static inline void store_words(int16_t* p, I16 a) {
  _mm256_storeu_si256((__m256i*)p, _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xd8));
}
static inline void store_bytes(int8_t* p, I16 a) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xd8);
  _mm_storeu_si128((__m128i*)p, _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
static inline I16 add(I16 a, int32_t b) { return {_mm256_add_epi32(a.lo, _mm256_set1_epi32(b)), _mm256_add_epi32(a.hi, _mm256_set1_epi32(b))}; }
static inline I16 add(I16 a, I16 b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
static inline I16 sub(I16 a, I16 b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
static inline I16 shift_right_7(I16 a) { return {_mm256_srai_epi32(a.lo, 7), _mm256_srai_epi32(a.hi, 7)}; }
static inline I16 shift_left_7(I16 a) { return {_mm256_slli_epi32(a.lo, 7), _mm256_slli_epi32(a.hi, 7)}; }
static inline I16 zero_int() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }

#else  // portable: plain loops over sixteen lanes, which compilers turn into whatever the processor has

struct F16 { float v[16]; };
struct I16 { int32_t v[16]; };
struct M16 { bool v[16]; };
#define ZL_LANES(type, expression) \
  type r;                          \
  for (int i = 0; i < 16; i++) r.v[i] = (expression); \
  return r;

static inline F16 load(const float* p) { F16 r; memcpy(r.v, p, 64); return r; }
static inline void store(float* p, F16 a) { memcpy(p, a.v, 64); }
static inline F16 splat(float x) { ZL_LANES(F16, x) }
static inline F16 add(F16 a, F16 b) { ZL_LANES(F16, a.v[i] + b.v[i]) }
static inline F16 sub(F16 a, F16 b) { ZL_LANES(F16, a.v[i] - b.v[i]) }
static inline F16 mul(F16 a, F16 b) { ZL_LANES(F16, a.v[i] * b.v[i]) }
static inline F16 div(F16 a, F16 b) { ZL_LANES(F16, a.v[i] / b.v[i]) }
static inline F16 fma(F16 a, F16 b, F16 c) { ZL_LANES(F16, __builtin_fmaf(a.v[i], b.v[i], c.v[i])) }
static inline F16 max(F16 a, F16 b) { ZL_LANES(F16, a.v[i] > b.v[i] ? a.v[i] : b.v[i]) }
static inline F16 min(F16 a, F16 b) { ZL_LANES(F16, a.v[i] < b.v[i] ? a.v[i] : b.v[i]) }
static inline F16 abs(F16 a) { ZL_LANES(F16, __builtin_fabsf(a.v[i])) }
static inline float from_half(uint16_t half) {  // exact, subnormals included
  const uint32_t sign = uint32_t(half & 0x8000) << 16, exponent = (half >> 10) & 31, mantissa = half & 1023;
  const float small = float(mantissa) * 0x1p-24f;
  uint32_t bits;
  memcpy(&bits, &small, 4);
  if (exponent) bits = ((exponent == 31 ? 255 : exponent + 112) << 23) | (mantissa << 13);
  bits |= sign;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static inline F16 load_half(const uint8_t* p) {
  uint16_t halves[16];
  memcpy(halves, p, 32);
  ZL_LANES(F16, from_half(halves[i]))
}
static inline I16 load(const int32_t* p) { I16 r; memcpy(r.v, p, 64); return r; }
static inline void store(int32_t* p, I16 a) { memcpy(p, a.v, 64); }
static inline F16 to_float(I16 a) { ZL_LANES(F16, float(a.v[i])) }
static inline int32_t nearest(float x) {  // |x| < 2^22: adding 1.5 * 2^23 leaves the rounded integer in the low mantissa bits
  const float shifted = x + 12582912.0f;
  int32_t bits;
  memcpy(&bits, &shifted, 4);
  return bits - 0x4b400000;
}
static inline I16 to_int(F16 a) { ZL_LANES(I16, nearest(a.v[i])) }
static inline F16 pow2(I16 n) {
  F16 r;
  for (int i = 0; i < 16; i++) {
    const int32_t bits = int32_t(uint32_t(n.v[i] + 127) << 23);
    memcpy(&r.v[i], &bits, 4);
  }
  return r;
}
static inline M16 less(F16 a, F16 b) { ZL_LANES(M16, a.v[i] < b.v[i]) }
static inline M16 first_lanes(int n) { ZL_LANES(M16, i < n) }
static inline F16 select(M16 m, F16 yes, F16 no) { ZL_LANES(F16, m.v[i] ? yes.v[i] : no.v[i]) }
static inline void store_bytes(int8_t* p, I16 a) { for (int i = 0; i < 16; i++) p[i] = int8_t(a.v[i]); }
static inline void store_words(int16_t* p, I16 a) { for (int i = 0; i < 16; i++) p[i] = int16_t(a.v[i]); }
static inline I16 add(I16 a, int32_t b) { ZL_LANES(I16, int32_t(uint32_t(a.v[i]) + uint32_t(b))) }
static inline I16 add(I16 a, I16 b) { ZL_LANES(I16, int32_t(uint32_t(a.v[i]) + uint32_t(b.v[i]))) }
static inline I16 sub(I16 a, I16 b) { ZL_LANES(I16, int32_t(uint32_t(a.v[i]) - uint32_t(b.v[i]))) }
static inline I16 shift_right_7(I16 a) { ZL_LANES(I16, a.v[i] >> 7) }
static inline I16 shift_left_7(I16 a) { ZL_LANES(I16, int32_t(uint32_t(a.v[i]) << 7)) }
static inline I16 zero_int() { ZL_LANES(I16, 0) }
#undef ZL_LANES

#endif

#if defined(ZL_USE_AVX512) || defined(ZL_USE_AVX2)

#if defined(ZL_USE_AVX512)
// Not _mm512_castps512_ps256, which GCC 12 takes for a use of something uninitialised.
static inline __m256 low_half(F16 a) { return __builtin_shufflevector(a.v, a.v, 0, 1, 2, 3, 4, 5, 6, 7); }
static inline __m256 high_half(F16 a) { return _mm512_extractf32x8_ps(a.v, 1); }
#else
static inline __m256 low_half(F16 a) { return a.lo; }
static inline __m256 high_half(F16 a) { return a.hi; }
#endif

static inline float sum_lanes(F16 a) {
  const __m256 eight = _mm256_add_ps(low_half(a), high_half(a));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static inline float max_lanes(F16 a) {
  const __m256 eight = _mm256_max_ps(low_half(a), high_half(a));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

#else

static inline float sum_lanes(F16 a) {
  float t[16];
  store(t, a);
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; i++) t[i] = t[i] + t[i + half];
  return t[0];
}

static inline float max_lanes(F16 a) {
  float t[16];
  store(t, a);
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; i++) t[i] = t[i] > t[i + half] ? t[i] : t[i + half];
  return t[0];
}

#endif

// e^x for x <= 88; 0 below -87. Cody-Waite reduction by ln 2 in two parts, then the polynomial of Cephes' expf (degree 5 after the
// linear term); relative error below 2e-7 (shown by the kernel test).
static inline F16 exp(F16 x) {
  const M16 underflow = less(x, splat(-87.0f));
  x = max(x, splat(-87.0f));
  x = min(x, splat(88.0f));
  const I16 n = to_int(mul(x, splat(1.44269504f)));
  const F16 nf = to_float(n);
  F16 r = fma(nf, splat(-0.693359375f), x);
  r = fma(nf, splat(2.12194440e-4f), r);
  F16 p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, mul(r, r), add(r, splat(1.0f)));
  return select(underflow, splat(0.0f), mul(p, pow2(n)));
}

}  // namespace ZL_ISA
