// Integer products in plain C++: any processor. Included by float_ops.hpp inside one translation unit only.
#pragma once

#include "kernels.hpp"

namespace ZL_ISA {

constexpr int kRowBlock = 1;
constexpr bool kUsesWords = true, kUsesBytes = false;

// Sums of weight byte * q over [k_begin, k_end) for kRows rows from `row`, to out[kRows][32]; modulo 2^32, not yet corrected for the
// 128 in the weight bytes.
template <int kRows>
static void dot_panel(const uint8_t* panel, int k_begin, int k_end, const zl::Activations& a, int row, zl::Ahead&, int32_t* out) {
  for (int r = 0; r < kRows; r++) {
    uint32_t sum[32] = {};
    const int16_t* q = a.words + size_t(row + r) * a.stride;
    for (int k = k_begin; k < k_end; k += 4) {
      for (int tile = 0; tile < 2; tile++) {
        const uint8_t* w = panel + size_t(k / 64) * 2048 + tile * 1024 + (k % 64) * 16;
        for (int o = 0; o < 16; o++)
          sum[tile * 16 + o] += uint32_t(w[o * 4] * q[k] + w[o * 4 + 1] * q[k + 1] + w[o * 4 + 2] * q[k + 2] + w[o * 4 + 3] * q[k + 3]);
      }
    }
    memcpy(out + r * 32, sum, sizeof sum);
  }
}

// Scores of `blocks` blocks of 16 tokens for `group` query heads, to scores[group][stride].
static inline void dot_keys(const int16_t* keys, int blocks, int head_dim, const int16_t* query, int group, int32_t* scores, int stride) {
  for (int b = 0; b < blocks; b++, keys += size_t(head_dim) * 16)
    for (int g = 0; g < group; g++) {
      int32_t sum[16] = {};
      const int16_t* q = query + g * head_dim;
      for (int d = 0; d < head_dim; d += 2)
        for (int t = 0; t < 16; t++) sum[t] += keys[d * 16 + t * 2] * q[d] + keys[d * 16 + t * 2 + 1] * q[d + 1];
      memcpy(scores + size_t(g) * stride + b * 16, sum, sizeof sum);
    }
}

// Adds the weighted sums of values over `quads` groups of four tokens to sums[group][2][head_dim]; probabilities are [group][stride].
static inline void dot_values(const int8_t* values, int quads, int head_dim, const uint8_t* hi, const uint8_t* lo, int stride, int group,
                              int32_t* sums) {
  for (int g = 0; g < group; g++, hi += stride, lo += stride, sums += 2 * head_dim)
    for (int t = 0; t < quads; t++) {
      const int8_t* v = values + size_t(t) * head_dim * 4;
      for (int d = 0; d < head_dim; d++)
        for (int i = 0; i < 4; i++) {
          sums[d] += v[d * 4 + i] * hi[t * 4 + i];
          sums[head_dim + d] += v[d * 4 + i] * lo[t * 4 + i];
        }
    }
}

}  // namespace ZL_ISA
