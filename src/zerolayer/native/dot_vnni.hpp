// Integer products by AVX-512 VNNI: 4 unsigned weight bytes times 4 signed activation bytes, summed into int32.
//
// Inline assembly, because GCC 12 spills accumulators around _mm512_dpbusd_epi32 in kernels of several rows.
#pragma once

#include "fetch.hpp"
#include "kernels.hpp"

namespace ZL_ISA {

#if !defined(ZL_USE_AMX)
constexpr int kRowBlock = 6;
constexpr bool kUsesWords = false, kUsesBytes = true;
#endif

static inline __attribute__((always_inline)) void dot4(__m512i& sum, __m512i weight, const int8_t* q) {
  __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(weight), "m"(*(const int32_t*)q));
}
static inline __attribute__((always_inline)) void dot2(__m512i& sum, __m512i key, const int16_t* q) {
  __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(key), "m"(*(const int32_t*)q));
}
static inline __attribute__((always_inline)) void dot4(__m512i& sum, __m512i probability, __m512i value) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(probability), "v"(value));
}

template <int kRows>
static void dot_rows(const uint8_t* panel, int k_begin, int k_end, const zl::Activations& a, int row, zl::Ahead& ahead, int32_t* out) {
  __m512i high[kRows][2], low[kRows][2];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; r++) high[r][0] = high[r][1] = low[r][0] = low[r][1] = _mm512_setzero_si512();
  const size_t stride = a.stride;
  const int8_t* hi = a.hi + row * stride;
  const int8_t* lo = a.lo + row * stride;
  for (int block = k_begin; block < k_end; block += 64) {
    const uint8_t* w = panel + size_t(block) * 32;
    fetch(ahead);
    for (int k = block; k < block + 64; k += 4, w += 64) {
      const __m512i left = _mm512_loadu_si512(w), right = _mm512_loadu_si512(w + 1024);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; r++) {
        dot4(high[r][0], left, hi + r * stride + k);
        dot4(high[r][1], right, hi + r * stride + k);
        dot4(low[r][0], left, lo + r * stride + k);
        dot4(low[r][1], right, lo + r * stride + k);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; r++)
    for (int tile = 0; tile < 2; tile++)
      _mm512_storeu_si512(out + r * 32 + tile * 16, _mm512_add_epi32(_mm512_slli_epi32(high[r][tile], 7), low[r][tile]));
}

#if !defined(ZL_USE_AMX)
template <int kRows>
static void dot_panel(const uint8_t* panel, int k_begin, int k_end, const zl::Activations& a, int row, zl::Ahead& ahead, int32_t* out) {
  dot_rows<kRows>(panel, k_begin, k_end, a, row, ahead, out);
}
#endif

// Blocks x heads accumulators: enough independent chains to hide the latency of the products.
template <int kBlocks, int kHeads>
static inline void dot_key_blocks(const int16_t* keys, int head_dim, const int16_t* query, int32_t* scores, int stride) {
  __m512i sum[kBlocks][kHeads];
#pragma GCC unroll 4
  for (int b = 0; b < kBlocks; b++)
#pragma GCC unroll 4
    for (int g = 0; g < kHeads; g++) sum[b][g] = _mm512_setzero_si512();
  for (int d = 0; d < head_dim; d += 2)
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; b++) {
      const __m512i key = _mm512_loadu_si512(keys + (size_t(b) * head_dim + d) * 16);
#pragma GCC unroll 4
      for (int g = 0; g < kHeads; g++) dot2(sum[b][g], key, query + g * head_dim + d);
    }
#pragma GCC unroll 4
  for (int b = 0; b < kBlocks; b++)
#pragma GCC unroll 4
    for (int g = 0; g < kHeads; g++) _mm512_storeu_si512(scores + size_t(g) * stride + b * 16, sum[b][g]);
}

template <int kHeads>
static inline void dot_keys_of(const int16_t* keys, int blocks, int head_dim, const int16_t* query, int32_t* scores, int stride) {
  int b = 0;
  for (; b + 2 <= blocks; b += 2) dot_key_blocks<2, kHeads>(keys + size_t(b) * head_dim * 16, head_dim, query, scores + b * 16, stride);
  if (b < blocks) dot_key_blocks<1, kHeads>(keys + size_t(b) * head_dim * 16, head_dim, query, scores + b * 16, stride);
}

static inline void dot_keys(const int16_t* keys, int blocks, int head_dim, const int16_t* query, int group, int32_t* scores, int stride) {
  for (; group >= 4; group -= 4, query += 4 * head_dim, scores += size_t(4) * stride)
    dot_keys_of<4>(keys, blocks, head_dim, query, scores, stride);
  if (group == 3) dot_keys_of<3>(keys, blocks, head_dim, query, scores, stride);
  if (group == 2) dot_keys_of<2>(keys, blocks, head_dim, query, scores, stride);
  if (group == 1) dot_keys_of<1>(keys, blocks, head_dim, query, scores, stride);
}

static inline __m512i splat_quad(const uint8_t* p) {
  int32_t quad;
  memcpy(&quad, p, 4);
  return _mm512_set1_epi32(quad);
}

// 32 dimensions of kHeads heads: every value is loaded once for all of them.
template <int kHeads>
static inline void dot_values_of(const int8_t* values, int quads, int head_dim, const uint8_t* hi, const uint8_t* lo, int stride, int32_t* sums) {
  for (int d = 0; d < head_dim; d += 32) {
    __m512i high[kHeads][2], low[kHeads][2];
#pragma GCC unroll 3
    for (int g = 0; g < kHeads; g++)
      for (int j = 0; j < 2; j++) {
        high[g][j] = _mm512_loadu_si512(sums + 2 * g * head_dim + d + j * 16);
        low[g][j] = _mm512_loadu_si512(sums + (2 * g + 1) * head_dim + d + j * 16);
      }
    for (int t = 0; t < quads; t++) {
      const int8_t* v = values + (size_t(t) * head_dim + d) * 4;
      const __m512i left = _mm512_loadu_si512(v), right = _mm512_loadu_si512(v + 64);
#pragma GCC unroll 3
      for (int g = 0; g < kHeads; g++) {
        const __m512i h = splat_quad(hi + size_t(g) * stride + t * 4), l = splat_quad(lo + size_t(g) * stride + t * 4);
        dot4(high[g][0], h, left);
        dot4(high[g][1], h, right);
        dot4(low[g][0], l, left);
        dot4(low[g][1], l, right);
      }
    }
#pragma GCC unroll 3
    for (int g = 0; g < kHeads; g++)
      for (int j = 0; j < 2; j++) {
        _mm512_storeu_si512(sums + 2 * g * head_dim + d + j * 16, high[g][j]);
        _mm512_storeu_si512(sums + (2 * g + 1) * head_dim + d + j * 16, low[g][j]);
      }
  }
}

static inline void dot_values(const int8_t* values, int quads, int head_dim, const uint8_t* hi, const uint8_t* lo, int stride, int group,
                              int32_t* sums) {
  for (; group >= 3; group -= 3, hi += size_t(3) * stride, lo += size_t(3) * stride, sums += 6 * head_dim)
    dot_values_of<3>(values, quads, head_dim, hi, lo, stride, sums);
  if (group == 2) dot_values_of<2>(values, quads, head_dim, hi, lo, stride, sums);
  if (group == 1) dot_values_of<1>(values, quads, head_dim, hi, lo, stride, sums);
}

}  // namespace ZL_ISA
