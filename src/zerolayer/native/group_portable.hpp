// Products of one group (32 inputs x 16 outputs) of grouped weights in plain C++.
#pragma once

#include "kernels.hpp"

namespace ZL_ISA {

constexpr int kGroupRows = 1;

struct Group {
  const uint8_t* q;
  bool nibbles;
};

static inline Group load_group(const uint8_t* q, bool nibbles) { return {q, nibbles}; }

// Sum of q * activation for 16 outputs; exact.
static inline I16 dot_group(const Group& g, const Activations& a, size_t at) {
  int32_t sum[16] = {};
  for (int i = 0; i < zl::kGroup; i++) {
    const int quad = i / 4, x = a.words[at + i];
    for (int o = 0; o < 16; o++) {
      const int byte = g.nibbles ? g.q[quad / 2 * 64 + o * 4 + i % 4] >> (quad % 2 * 4) & 15 : g.q[quad * 64 + o * 4 + i % 4];
      sum[o] += byte * x;
    }
  }
  return load(sum);
}

}  // namespace ZL_ISA
