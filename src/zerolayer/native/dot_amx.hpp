// Integer products by AMX tiles for blocks of 16 rows; fewer rows than kTileRows go the VNNI way (the same integers).
#pragma once

#include "amx_tiles.hpp"
#include "fetch.hpp"
#include "kernels.hpp"

namespace ZL_ISA {

// Sums for up to 16 rows from `row` to out[16][32]. The activation buffers are padded to whole blocks of 16 rows.
static void dot_tiles(const uint8_t* panel, int k_begin, int k_end, const zl::Activations& a, int row, zl::Ahead& ahead, int32_t* out) {
  alignas(64) int32_t high[16][32];
  tile_zero<0>();
  tile_zero<1>();
  tile_zero<2>();
  tile_zero<3>();
  const size_t stride = a.stride;
  for (int k = k_begin; k < k_end; k += 64) {
    const uint8_t* w = panel + size_t(k) * 32;
    fetch(ahead);
    tile_load<6>(w, 64);
    tile_load<4>(a.hi + row * stride + k, stride);
    tile_dot_signed_unsigned<0, 4, 6>();
    tile_load<7>(w + 1024, 64);
    tile_dot_signed_unsigned<1, 4, 7>();
    tile_load<5>(a.lo + row * stride + k, stride);
    tile_dot_signed_unsigned<2, 5, 6>();
    tile_dot_signed_unsigned<3, 5, 7>();
  }
  tile_store<0>(&high[0][0], 128);
  tile_store<1>(&high[0][16], 128);
  tile_store<2>(out, 128);
  tile_store<3>(out + 16, 128);
  for (int i = 0; i < 16 * 32; i++) out[i] = int32_t((uint32_t((&high[0][0])[i]) << 7) + uint32_t(out[i]));
}

constexpr int kRowBlock = 16;
#if defined(ZL_AMX_EMULATED)
constexpr bool kUsesWords = true, kUsesBytes = true;  // attention comes from dot_madd.hpp
constexpr int kTileRows = 1;
#else
constexpr bool kUsesWords = false, kUsesBytes = true;
constexpr int kTileRows = 5;
#endif

template <int kRows>
static void dot_panel(const uint8_t* panel, int k_begin, int k_end, const zl::Activations& a, int row, zl::Ahead& ahead, int32_t* out) {
  if constexpr (kRows >= kTileRows) {
    int32_t block[16 * 32];
    dot_tiles(panel, k_begin, k_end, a, row, ahead, block);
    memcpy(out, block, sizeof(int32_t) * kRows * 32);
  } else {
#if !defined(ZL_AMX_EMULATED)
    dot_rows<kRows>(panel, k_begin, k_end, a, row, ahead, out);
#endif
  }
}

}  // namespace ZL_ISA
