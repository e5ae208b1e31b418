// Products of one group (32 inputs x 16 outputs) of grouped weights by AVX-512 VNNI.
#pragma once

#include "kernels.hpp"

namespace ZL_ISA {

constexpr int kGroupRows = 4;

struct Group { __m512i quads[8]; };

static inline __attribute__((always_inline)) Group load_group(const uint8_t* q, bool nibbles) {
  Group g;
  if (nibbles) {
    const __m512i mask = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      const __m512i both = _mm512_loadu_si512(q + i * 64);
      g.quads[2 * i] = _mm512_and_si512(both, mask);
      g.quads[2 * i + 1] = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
    }
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) g.quads[i] = _mm512_loadu_si512(q + i * 64);
  }
  return g;
}

// Two chains a plane: one alone would wait for its own last product.
static inline __attribute__((always_inline)) I16 dot_group(const Group& g, const Activations& a, size_t at) {
  __m512i hi[2], lo[2];
  hi[0] = hi[1] = lo[0] = lo[1] = _mm512_setzero_si512();
#pragma GCC unroll 8
  for (int quad = 0; quad < 8; quad++) {
    dot4(hi[quad % 2], g.quads[quad], a.hi + at + quad * 4);
    dot4(lo[quad % 2], g.quads[quad], a.lo + at + quad * 4);
  }
  return {_mm512_add_epi32(_mm512_slli_epi32(_mm512_add_epi32(hi[0], hi[1]), 7), _mm512_add_epi32(lo[0], lo[1]))};
}

}  // namespace ZL_ISA
