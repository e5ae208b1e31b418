// Matrix products with grouped weights: integer products of a group are exact, groups are added in floats in the order of the inputs.
#pragma once

#include "kernels.hpp"

namespace ZL_ISA {

// One tile (16 outputs) for kRows rows.
template <int kRows>
static inline __attribute__((always_inline)) void tile_rows(const Matrix& m, const uint8_t* tile, bool nibbles, const Activations& a, int row,
                                                            Ahead& ahead, F16* out) {
  const size_t bytes = zl::group_bytes(m.kind), stride = a.stride, sums = stride / zl::kGroup;
#pragma GCC unroll 4
  for (int r = 0; r < kRows; r++) out[r] = splat(0.0f);
  for (int group = 0; group < m.k / zl::kGroup; group++, tile += bytes) {
    fetch(ahead);
    const Group g = load_group(tile, nibbles);
    const F16 d = load_half(tile + bytes - 64), minimum = load_half(tile + bytes - 32);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; r++) {
      out[r] = fma(to_float(dot_group(g, a, (row + r) * stride + size_t(group) * zl::kGroup)), d, out[r]);
      out[r] = fma(minimum, splat(a.group_sum[(row + r) * sums + group]), out[r]);
    }
  }
}

template <int kRows>
static void grouped_rows(const Matrix& m, const Activations& a, int row, int panel, Ahead& ahead, Epilogue epilogue, float* out, size_t stride) {
  const uint8_t* data = m.data + size_t(panel) * m.panel_bytes();
  const bool nibbles = m.kind == zl::Kind::kNibbles;
  F16 left[kRows], right[kRows];
  if (nibbles) {  // two instances, so that the inner loops do not ask
    tile_rows<kRows>(m, data, true, a, row, ahead, left);
    tile_rows<kRows>(m, data + m.panel_bytes() / 2, true, a, row, ahead, right);
  } else {
    tile_rows<kRows>(m, data, false, a, row, ahead, left);
    tile_rows<kRows>(m, data + m.panel_bytes() / 2, false, a, row, ahead, right);
  }
  for (int r = 0; r < kRows; r++) {
    const F16 scale = splat(a.scale[row + r]);
    finish_tile_pair(m, panel, mul(left[r], scale), mul(right[r], scale), epilogue, out + (row + r) * stride);
  }
}

template <int kRows>
static void grouped_tail(const Matrix& m, const Activations& a, int row, int left, int panel, Ahead& ahead, Epilogue epilogue, float* out,
                         size_t stride) {
  if constexpr (kRows > 0) {
    if (left == kRows) grouped_rows<kRows>(m, a, row, panel, ahead, epilogue, out, stride);
    else grouped_tail<kRows - 1>(m, a, row, left, panel, ahead, epilogue, out, stride);
  }
}

static void grouped_gemm(const Matrix& m, const Activations& a, int rows, int begin, int end, Ahead& ahead, Epilogue epilogue, float* out,
                         size_t stride) {
  const int blocks = (rows + kGroupRows - 1) / kGroupRows, steps = 2 * m.k / zl::kGroup;
  spread(ahead, m, end - begin, int(zl::group_bytes(m.kind) / 64), kMostGroupLines, blocks, steps);
  for (int panel = begin; panel < end; panel++) {
    ahead.panel = (const char*)(panel + 1 < end ? m.data + size_t(panel + 1) * m.panel_bytes() : ahead.after);
    int row = 0;
    for (; row + kGroupRows <= rows; row += kGroupRows) grouped_rows<kGroupRows>(m, a, row, panel, ahead, epilogue, out, stride);
    grouped_tail<kGroupRows - 1>(m, a, row, rows - row, panel, ahead, epilogue, out, stride);
  }
}

}  // namespace ZL_ISA
