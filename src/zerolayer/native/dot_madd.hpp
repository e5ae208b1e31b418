// Integer products by 16-bit multiply-add: AVX2 (256 bit) and AVX-512 without VNNI (512 bit).
#pragma once

#include "kernels.hpp"

namespace ZL_ISA {

#if !defined(ZL_USE_AMX)
constexpr bool kUsesWords = true, kUsesBytes = true;  // bytes for grouped weights
#endif

#if defined(ZL_USE_AVX512)
using V = __m512i;
constexpr int kMaddRows = 4;
static inline V widen(const uint8_t* p) { return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i*)p)); }
static inline V splat64(const void* p) { int64_t x; memcpy(&x, p, 8); return _mm512_set1_epi64(x); }
static inline V splat32(const void* p) { int32_t x; memcpy(&x, p, 4); return _mm512_set1_epi32(x); }
static inline V load_v(const void* p) { return _mm512_loadu_si512(p); }
static inline void store_v(void* p, V a) { _mm512_storeu_si512(p, a); }
static inline V madd(V a, V b) { return _mm512_madd_epi16(a, b); }
static inline V maddu(V a, V b) { return _mm512_madd_epi16(_mm512_maddubs_epi16(a, b), _mm512_set1_epi16(1)); }
static inline V plus(V a, V b) { return _mm512_add_epi32(a, b); }
static inline V zero_v() { return _mm512_setzero_si512(); }
#else
using V = __m256i;
constexpr int kMaddRows = 2;
static inline V widen(const uint8_t* p) { return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i*)p)); }
static inline V splat64(const void* p) { int64_t x; memcpy(&x, p, 8); return _mm256_set1_epi64x(x); }
static inline V splat32(const void* p) { int32_t x; memcpy(&x, p, 4); return _mm256_set1_epi32(x); }
static inline V load_v(const void* p) { return _mm256_loadu_si256((const __m256i*)p); }
static inline void store_v(void* p, V a) { _mm256_storeu_si256((__m256i*)p, a); }
static inline V madd(V a, V b) { return _mm256_madd_epi16(a, b); }
static inline V maddu(V a, V b) { return _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)); }
static inline V plus(V a, V b) { return _mm256_add_epi32(a, b); }
static inline V zero_v() { return _mm256_setzero_si256(); }
#endif

constexpr int kLanes = sizeof(V) / 4;      // int32 sums of a register
constexpr int kOutputs = kLanes / 2;       // outputs of a register: two partial sums each
constexpr int kRegisters = 16 / kOutputs;  // registers of one tile

#if !defined(ZL_USE_AMX)
constexpr int kRowBlock = kMaddRows;

template <int kRows>
static void dot_panel(const uint8_t* panel, int k_begin, int k_end, const zl::Activations& a, int row, zl::Ahead&, int32_t* out) {
  for (int tile = 0; tile < 2; tile++) {
    V sum[kRows][kRegisters];
    for (int r = 0; r < kRows; r++)
      for (int j = 0; j < kRegisters; j++) sum[r][j] = zero_v();
    for (int k = k_begin; k < k_end; k += 4) {
      const uint8_t* w = panel + size_t(k / 64) * 2048 + tile * 1024 + (k % 64) * 16;
      V weight[kRegisters];
#pragma GCC unroll 4
      for (int j = 0; j < kRegisters; j++) weight[j] = widen(w + j * kOutputs * 4);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; r++) {
        const V q = splat64(a.words + size_t(row + r) * a.stride + k);
#pragma GCC unroll 4
        for (int j = 0; j < kRegisters; j++) sum[r][j] = plus(sum[r][j], madd(weight[j], q));
      }
    }
    for (int r = 0; r < kRows; r++) {
      uint32_t pairs[32];
      for (int j = 0; j < kRegisters; j++) store_v(pairs + j * kLanes, sum[r][j]);
      for (int o = 0; o < 16; o++) out[r * 32 + tile * 16 + o] = int32_t(pairs[2 * o] + pairs[2 * o + 1]);
    }
  }
}
#endif

static inline void dot_keys(const int16_t* keys, int blocks, int head_dim, const int16_t* query, int group, int32_t* scores, int stride) {
  constexpr int kParts = 16 / kLanes;
  for (int b = 0; b < blocks; b++, keys += size_t(head_dim) * 16)
    for (int g = 0; g < group; g++) {
      V sum[kParts];
      for (int j = 0; j < kParts; j++) sum[j] = zero_v();
      for (int d = 0; d < head_dim; d += 2) {
        const V q = splat32(query + g * head_dim + d);
        for (int j = 0; j < kParts; j++) sum[j] = plus(sum[j], madd(load_v(keys + d * 16 + j * kLanes * 2), q));
      }
      for (int j = 0; j < kParts; j++) store_v(scores + size_t(g) * stride + b * 16 + j * kLanes, sum[j]);
    }
}

static inline void dot_values(const int8_t* values, int quads, int head_dim, const uint8_t* hi, const uint8_t* lo, int stride, int group,
                              int32_t* sums) {
  constexpr int kParts = 32 / kLanes;  // 32 dimensions at a time: head_dim is a multiple of 32
  for (int g = 0; g < group; g++, hi += stride, lo += stride, sums += 2 * head_dim)
    for (int d = 0; d < head_dim; d += 32) {
      V high[kParts], low[kParts];
      for (int j = 0; j < kParts; j++) {
        high[j] = load_v(sums + d + j * kLanes);
        low[j] = load_v(sums + head_dim + d + j * kLanes);
      }
      for (int t = 0; t < quads; t++) {
        const V h = splat32(hi + t * 4), l = splat32(lo + t * 4);
        for (int j = 0; j < kParts; j++) {
          const V v = load_v(values + (size_t(t) * head_dim + d + j * kLanes) * 4);
          high[j] = plus(high[j], maddu(h, v));
          low[j] = plus(low[j], maddu(l, v));
        }
      }
      for (int j = 0; j < kParts; j++) {
        store_v(sums + d + j * kLanes, high[j]);
        store_v(sums + head_dim + d + j * kLanes, low[j]);
      }
    }
}

}  // namespace ZL_ISA
