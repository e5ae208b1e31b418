// Fetches what a thread reads next into its second cache, a few lines at a time, while it multiplies.
#pragma once

#include "kernels.hpp"

namespace ZL_ISA {

static inline __attribute__((always_inline)) void fetch(zl::Ahead& ahead) {
  for (int line = 0; line < ahead.panel_lines; line++, ahead.panel += 64) __builtin_prefetch(ahead.panel, 0, 2);
  for (int line = 0; line < ahead.piece_lines && ahead.piece < ahead.end; line++) {
    __builtin_prefetch(ahead.piece->at, 0, 2);
    ahead.piece->at += 64;
    if (--ahead.piece->lines <= 0) ahead.piece++;
  }
}

// Spreads `panel_lines`, the lines of a panel that are read at one step, over the same step of all blocks of rows, and this product's share
// of the pieces over all its steps, `most` lines at each: more than memory gives meanwhile would only be waited for.
static void spread(zl::Ahead& ahead, const zl::Matrix& m, int panels, int panel_lines, int most, int blocks, int steps) {
  ahead.panel_lines = blocks ? (panel_lines + blocks - 1) / blocks : 0;
  int64_t lines = 0;
  for (const zl::Ahead::Piece* piece = ahead.piece; piece < ahead.end; piece++) lines += piece->lines;
  const int64_t own = int64_t(panels) * m.k_pad, all = int64_t(panels) * blocks * steps;
  if (own < ahead.products) lines = lines * own / ahead.products;
  ahead.products -= own;
  const int64_t each = all ? (lines + all - 1) / all : 0;
  ahead.piece_lines = int(each < most ? each : most);
}

}  // namespace ZL_ISA
