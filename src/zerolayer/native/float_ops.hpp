// Everything around the integer products, written once for all kernel sets on top of simd.hpp: norm and quantise, the epilogues of a
// matrix product, rotary embedding, the KV cache, softmax, and the passes of the sampler.
#pragma once

#include "fetch.hpp"
#include "kernels.hpp"

namespace ZL_ISA {

using zl::Activations;
using zl::Ahead;
using zl::AttentionScratch;
using zl::Epilogue;
using zl::KvHead;
using zl::Matrix;

static inline float at_least(float x, float floor) { return x > floor ? x : floor; }

// q[0, 16) to the formats that this kernel set reads; `low`: they are at most 64, and wholly in the low part.
static inline void store_activation(const Activations& a, size_t at, I16 q, bool low) {
  if (kUsesWords) store_words(a.words + at, q);
  if (kUsesBytes) {
    const I16 hi = low ? zero_int() : shift_right_7(add(q, 64));
    store_bytes(a.hi + at, hi);
    store_bytes(a.lo + at, sub(q, shift_left_7(hi)));
  }
}

// Sums of the row's quantised values over groups of 32, from whichever format this kernel set keeps.
static void sum_groups(const Activations& a, int row, int k_pad) {
  const size_t base = size_t(row) * a.stride;
  float* sums = a.group_sum + base / zl::kGroup;
  for (int group = 0; group < k_pad / zl::kGroup; group++) {
    int32_t sum = 0;
    for (size_t i = base + size_t(group) * zl::kGroup; i < base + size_t(group + 1) * zl::kGroup; i++)
      sum += kUsesWords ? a.words[i] : a.hi[i] * 128 + a.lo[i];
    sums[group] = float(sum);
  }
}

// The 128th part of sixteen inputs of the row at `base`, which is quantised.
static inline I16 fine_inputs(const Activations& a, size_t base, const int32_t* inputs) {
  int32_t q[16];
  for (int i = 0; i < 16; i++) q[i] = kUsesBytes ? a.hi[base + inputs[i]] : (a.words[base + inputs[i]] + 64) >> 7;
  return load(q);
}

// RMSNorm (Zhang and Sennrich, 2019) and quantisation in one pass over x * norm: 1/rms only enters the scale. Buffers are padded with
// zeros to a multiple of 16, so no tail is needed.
static void quantise(const float* x, const Matrix& m, const float* norm, float eps, const Activations& a, int row) {
  const int k = m.k, k_pad = m.k_pad, coarse = m.k_coarse();
  F16 largest = splat(0.0f), squares = splat(0.0f);
  for (int i = 0; i < k; i += 16) {
    F16 v = load(x + i);
    if (norm) {
      squares = fma(v, v, squares);
      v = mul(v, load(norm + i));
    }
    largest = max(largest, abs(v));
  }
  const float top = at_least(max_lanes(largest), 1e-20f);
  float rms = 1.0f;
  if (norm) rms = 1.0f / __builtin_sqrtf(sum_lanes(squares) / float(k) + eps);
  a.scale[row] = top * rms / zl::kActivationMax;
  const F16 factor = splat(zl::kActivationMax / top);
  const size_t base = size_t(row) * a.stride;
  const int blocks = (k_pad + zl::kBlockK - 1) / zl::kBlockK;
  for (int block = 0; block < blocks; block++) {
    const int begin = block * zl::kBlockK;
    const int end = begin + zl::kBlockK < k_pad ? begin + zl::kBlockK : k_pad;
    I16 total = zero_int();
    for (int i = begin; i < end; i += 16) {
      I16 q = zero_int();
      if (i < k) q = to_int(mul(norm ? mul(load(x + i), load(norm + i)) : load(x + i), factor));
      else if (i >= coarse) q = fine_inputs(a, base, m.fine + (i - coarse));
      store_activation(a, base + i, q, i >= coarse);
      total = add(total, q);
    }
    int32_t lanes[16];
    store(lanes, total);
    uint32_t sum = 0;
    for (int i = 0; i < 16; i++) sum += uint32_t(lanes[i]);
    a.sum[size_t(row) * a.sum_stride + block] = int32_t(sum * 128u);
  }
  if (a.group_sum) sum_groups(a, row, k_pad);
}

// Rows of a panel, times the activations' scales, to `out`. Each epilogue is a loop of its own: rows then go side by side, where a question
// asked for each would keep them apart.
template <int kRows>
static inline __attribute__((always_inline)) void finish_rows(const Matrix& m, const Activations& a, int row, int panel, F16* left, F16* right,
                                                              Epilogue epilogue, float* out, size_t stride) {
  const F16 left_scale = load(m.scale + size_t(panel) * 32), right_scale = load(m.scale + size_t(panel) * 32 + 16);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; r++) {
    const F16 scale = splat(a.scale[row + r]);
    left[r] = mul(mul(left[r], scale), left_scale);
    right[r] = mul(mul(right[r], scale), right_scale);
  }
  if (m.bias) {
    const F16 left_bias = load(m.bias + size_t(panel) * 32), right_bias = load(m.bias + size_t(panel) * 32 + 16);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; r++) {
      left[r] = add(left[r], left_bias);
      right[r] = add(right[r], right_bias);
    }
  }
  out += row * stride + size_t(panel) * (epilogue == Epilogue::kSiluMul ? 16 : 32);
  if (epilogue == Epilogue::kSiluMul) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; r++) {
      const F16 denominator = add(splat(1.0f), exp(sub(splat(0.0f), left[r])));
      store(out + r * stride, div(mul(left[r], right[r]), denominator));
    }
  } else if (epilogue == Epilogue::kAdd) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; r++) {
      store(out + r * stride, add(load(out + r * stride), left[r]));
      store(out + r * stride + 16, add(load(out + r * stride + 16), right[r]));
    }
  } else {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; r++) {
      store(out + r * stride, left[r]);
      store(out + r * stride + 16, right[r]);
    }
  }
}

template <int kRows>
static void panel_rows(const Matrix& m, const Activations& a, int row, int panel, Ahead& ahead, Epilogue epilogue, float* out, size_t stride) {
  const uint8_t* data = m.data + size_t(panel) * m.panel_bytes();
  alignas(64) int32_t sums[kRows * 32];
  F16 left[kRows], right[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; r++) left[r] = right[r] = splat(0.0f);
  for (int block = 0, begin = 0; begin < m.k_pad; block++, begin += zl::kBlockK) {
    const int end = begin + zl::kBlockK < m.k_pad ? begin + zl::kBlockK : m.k_pad;
    const int coarse = m.k_coarse() < begin ? begin : m.k_coarse() < end ? m.k_coarse() : end;
    dot_panel<kRows>(data, begin, coarse, end, a, row, ahead, sums);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; r++) {
      const int32_t correction = int32_t(0u - uint32_t(a.sum[size_t(row + r) * a.sum_stride + block]));
      left[r] = add(left[r], to_float(add(load(sums + r * 32), correction)));
      right[r] = add(right[r], to_float(add(load(sums + r * 32 + 16), correction)));
    }
  }
  finish_rows<kRows>(m, a, row, panel, left, right, epilogue, out, stride);
}

// The widest instance that fits first; the rest by halving kRows at compile time.
template <int kRows>
static void panel_tail(const Matrix& m, const Activations& a, int row, int left, int panel, Ahead& ahead, Epilogue epilogue, float* out, size_t stride) {
  if constexpr (kRows > 0) {
    if (left == kRows) panel_rows<kRows>(m, a, row, panel, ahead, epilogue, out, stride);
    else panel_tail<kRows - 1>(m, a, row, left, panel, ahead, epilogue, out, stride);
  }
}

constexpr int kMostLines = 16, kMostGroupLines = 3;  // at one step: as much as memory gives meanwhile

static void int8_gemm(const Matrix& m, const Activations& a, int rows, int begin, int end, Ahead& ahead, Epilogue epilogue, float* out, size_t stride) {
#if defined(ZL_USE_AMX)
  configure_tiles();
#endif
  spread(ahead, m, end - begin, 32, kMostLines, (rows + kRowBlock - 1) / kRowBlock, m.k_pad / 64);
  for (int panel = begin; panel < end; panel++) {
    ahead.panel = (const char*)(panel + 1 < end ? m.data + size_t(panel + 1) * m.panel_bytes() : ahead.after);
    int row = 0;
    for (; row + kRowBlock <= rows; row += kRowBlock) panel_rows<kRowBlock>(m, a, row, panel, ahead, epilogue, out, stride);
    panel_tail<kRowBlock - 1>(m, a, row, rows - row, panel, ahead, epilogue, out, stride);
  }
#if defined(ZL_USE_AMX)
  release_tiles();
#endif
}

// RMSNorm of v[n] in place; n is a multiple of 16.
static void norm(float* v, int n, const float* gain, float eps) {
  F16 squares = splat(0.0f);
  for (int i = 0; i < n; i += 16) squares = fma(load(v + i), load(v + i), squares);
  const F16 factor = splat(1.0f / __builtin_sqrtf(sum_lanes(squares) / float(n) + eps));
  for (int i = 0; i < n; i += 16) store(v + i, mul(mul(load(v + i), factor), load(gain + i)));
}

// RoPE (Su et al., 2021), halves layout: dimension i pairs with i + head_dim / 2.
static void rope(float* v, int head_dim, const float* cosine, const float* sine) {
  const int half = head_dim / 2;
  for (int i = 0; i < half; i += 16) {
    const F16 a = load(v + i), b = load(v + i + half), c = load(cosine + i), s = load(sine + i);
    store(v + i, sub(mul(a, c), mul(b, s)));
    store(v + i + half, add(mul(b, c), mul(a, s)));
  }
}

static inline float largest_of(const float* x, int n) {
  F16 largest = splat(0.0f);
  for (int i = 0; i < n; i += 16) largest = max(largest, abs(load(x + i)));
  return at_least(max_lanes(largest), 1e-20f);
}

static void store_kv(const KvHead& kv, int head_dim, int position, const float* key, const float* value) {
  int16_t words[16];
  int8_t bytes[16];
  const float key_top = largest_of(key, head_dim), value_top = largest_of(value, head_dim);
  kv.key_scale[position] = key_top / zl::kKeyMax;
  kv.value_scale[position] = value_top / 127.0f;
  int16_t* keys = kv.keys + size_t(position / 16) * head_dim * 16 + (position % 16) * 2;
  int8_t* values = kv.values + size_t(position / 4) * head_dim * 4 + position % 4;
  for (int i = 0; i < head_dim; i += 16) {
    store_words(words, to_int(mul(load(key + i), splat(zl::kKeyMax / key_top))));
    for (int j = 0; j < 16; j += 2) memcpy(keys + (i + j) * 16, words + j, 4);
    store_bytes(bytes, to_int(mul(load(value + i), splat(127.0f / value_top))));
    for (int j = 0; j < 16; j++) values[(i + j) * 4] = bytes[j];
  }
}

struct TwoSegments {
  const KvHead &prefix, &own;
  int shared;
  const KvHead& at(int token) const { return token < shared ? prefix : own; }
};

// Integer scores of kHeads heads from `head` on to probabilities times value scales, 14 bits in two planes; factor[g] of the scores becomes
// that of the result. What lies beyond `length` in the last block is some other token's: it gets no weight. Heads go side by side, because
// each waits for the end of one pass before the next.
template <int kHeads>
static void softmax_rows(float* factor, const TwoSegments& kv, int length, const AttentionScratch& s, int head) {
  const int last = (length - 1) / 16 * 16;
  const M16 valid = first_lanes(length - last);
  const F16 nothing = splat(-1e30f);
  const int32_t* scores = s.scores + size_t(head) * s.score_stride;
  float* weights = s.weights + size_t(head) * s.prob_stride;
  F16 top[kHeads], total[kHeads], peak[kHeads], quantum[kHeads];
  float strongest[kHeads];
#pragma GCC unroll 4
  for (int g = 0; g < kHeads; g++) top[g] = nothing;
  for (int i = 0; i <= last; i += 16) {
    const F16 key_scale = load(kv.at(i).key_scale + i);
#pragma GCC unroll 4
    for (int g = 0; g < kHeads; g++) {
      F16 v = mul(to_float(load(scores + g * s.score_stride + i)), mul(splat(factor[g]), key_scale));
      if (i == last) v = select(valid, v, nothing);
      top[g] = max(top[g], v);
      store(weights + g * s.prob_stride + i, v);
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < kHeads; g++) {
    top[g] = splat(max_lanes(top[g]));
    total[g] = peak[g] = splat(0.0f);
  }
  for (int i = 0; i <= last; i += 16) {
    const F16 value_scale = load(kv.at(i).value_scale + i);
#pragma GCC unroll 4
    for (int g = 0; g < kHeads; g++) {
      const F16 e = exp(sub(load(weights + g * s.prob_stride + i), top[g]));
      total[g] = add(total[g], e);
      F16 w = mul(e, value_scale);
      if (i == last) w = select(valid, w, splat(0.0f));
      peak[g] = max(peak[g], w);
      store(weights + g * s.prob_stride + i, w);
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < kHeads; g++) {
    strongest[g] = at_least(max_lanes(peak[g]), 1e-30f);
    quantum[g] = splat(zl::kProbabilityMax / strongest[g]);
    factor[g] = strongest[g] / zl::kProbabilityMax / sum_lanes(total[g]);
  }
  int8_t* high = (int8_t*)s.prob_hi + size_t(head) * s.prob_stride;
  int8_t* low = (int8_t*)s.prob_lo + size_t(head) * s.prob_stride;
  for (int i = 0; i <= last; i += 16)
#pragma GCC unroll 4
    for (int g = 0; g < kHeads; g++) {
      const I16 p = to_int(mul(load(weights + g * s.prob_stride + i), quantum[g]));
      const I16 hi = shift_right_7(p);
      store_bytes(high + g * s.prob_stride + i, hi);
      store_bytes(low + g * s.prob_stride + i, sub(p, shift_left_7(hi)));
    }
}

// Causal attention of one kv head's query group for one row; all tokens up to `length` are in the cache.
static void attend(const KvHead& prefix, int shared, const KvHead& own, int head_dim, int group, int length, const float* query, float* out,
                   const AttentionScratch& s) {
  const TwoSegments kv{prefix, own, shared};
  const float limit = 520192.0f / float(head_dim);  // with kKeyMax: head_dim products stay below 2^31
  const float query_max = limit < zl::kActivationMax ? float(int(limit)) : zl::kActivationMax;
  float factor[64];
  for (int g = 0; g < group; g++) {
    const float top = largest_of(query + g * head_dim, head_dim);
    factor[g] = top / query_max / __builtin_sqrtf(float(head_dim));
    for (int i = 0; i < head_dim; i += 16)
      store_words(s.query + g * head_dim + i, to_int(mul(load(query + g * head_dim + i), splat(query_max / top))));
  }
  const int blocks = (length + 15) / 16, before = shared / 16;
  dot_keys(prefix.keys, before, head_dim, s.query, group, s.scores, s.score_stride);
  dot_keys(own.keys + size_t(shared) * head_dim, blocks - before, head_dim, s.query, group, s.scores + shared, s.score_stride);
  int head = 0;
  for (; head + 3 <= group; head += 3) softmax_rows<3>(factor + head, kv, length, s, head);
  for (; head < group; head++) softmax_rows<1>(factor + head, kv, length, s, head);
  memset(s.sums, 0, size_t(group) * head_dim * 8);
  dot_values(prefix.values, shared / 4, head_dim, s.prob_hi, s.prob_lo, s.prob_stride, group, s.sums);
  dot_values(own.values + size_t(shared) * head_dim, (length + 3) / 4 - shared / 4, head_dim, s.prob_hi + shared, s.prob_lo + shared,
             s.prob_stride, group, s.sums);
  for (int g = 0; g < group; g++)
    for (int i = 0; i < head_dim; i += 16) {
      const int32_t* sums = s.sums + 2 * g * head_dim + i;
      const F16 v = fma(to_float(load(sums)), splat(128.0f), to_float(load(sums + head_dim)));
      store(out + g * head_dim + i, mul(v, splat(factor[g])));
    }
}

// Blocks first, so that only one block is searched lane by lane, and no block waits for the one before.
static int argmax(const float* x, int n) {
  constexpr int kBlock = 256;
  float top = -__builtin_inff();
  int best = 0;
  F16 differences = splat(0.0f);  // of each number and itself: 0 where it is finite, else NaN
  float tail = 0.0f;
  for (int begin = 0; begin < n; begin += kBlock) {
    const int end = begin + kBlock < n ? begin + kBlock : n;
    F16 largest = splat(-__builtin_inff()), own = splat(0.0f);
    int i = begin;
    for (; i + 16 <= end; i += 16) {
      const F16 v = load(x + i);
      largest = max(v, largest);
      own = add(own, sub(v, v));
    }
    differences = add(differences, own);
    float block_top = max_lanes(largest);
    for (; i < end; i++) {
      block_top = x[i] > block_top ? x[i] : block_top;
      tail += x[i] - x[i];
    }
    if (block_top > top) {
      top = block_top;
      best = begin;
    }
  }
  if (!(sum_lanes(differences) + tail == 0.0f)) return -1;
  while (x[best] != top) best++;
  return best;
}

static float exp_sum(const float* x, int n, float shift, float factor, float* out, float* sums) {
  float total = 0.0f;
  for (int block = 0; block * 256 < n; block++) {
    const int end = (block + 1) * 256 < n ? (block + 1) * 256 : n;
    F16 sum = splat(0.0f);
    for (int i = block * 256; i < end; i += 16) {
      const M16 valid = first_lanes(end - i);
      const F16 e = exp(mul(sub(select(valid, load(x + i), splat(-1e30f)), splat(shift)), splat(factor)));
      store(out + i, e);
      sum = add(sum, e);
    }
    sums[block] = sum_lanes(sum);
    total = total + sums[block];
  }
  return total;
}

// q = nearest(w / scale) with scale = largest / 127, as byte q + 128; quads of one input group side by side for 16 outputs.
static void pack_tile(const float* const* rows, int k, int k_pad, uint8_t* tile, float* scale) {
  for (int o = 0; o < 16; o++) {
    const float* w = rows[o];
    float top = 0.0f;
    for (int i = 0; i < k; i++) top = __builtin_fabsf(w[i]) > top ? __builtin_fabsf(w[i]) : top;
    scale[o] = top / 127.0f;
    const float factor = top > 0.0f ? 127.0f / top : 0.0f;
    for (int block = 0; block < k_pad; block += 64) {
      uint8_t bytes[64];
      for (int i = 0; i < 64; i++) {
        const float v = block + i < k ? w[block + i] * factor : 0.0f;
        const float shifted = v + 12582912.0f;  // 1.5 * 2^23: the nearest integer in the low mantissa bits
        int32_t bits;
        memcpy(&bits, &shifted, 4);
        bytes[i] = uint8_t(bits + 128);
      }
      for (int quad = 0; quad < 16; quad++) memcpy(tile + size_t(block) * 32 + quad * 64 + o * 4, bytes + quad * 4, 4);
    }
  }
}

}  // namespace ZL_ISA
