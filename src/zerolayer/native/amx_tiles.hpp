// The five AMX instructions that the tile kernel uses, or a software model of them (ZL_AMX_EMULATED) so that the kernel's arithmetic
// and layout are tested on every machine. Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBSUD.
#pragma once

#include <cstdint>
#include <cstring>

namespace ZL_ISA {

struct alignas(64) TileConfig {  // palette 1, eight tiles of 16 rows x 64 bytes
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t column_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

#if defined(ZL_AMX_EMULATED)

struct Tiles { int8_t t[8][16][64]; };
static Tiles& tiles() { static thread_local Tiles state; return state; }
static inline void configure_tiles() {}
static inline void release_tiles() {}
template <int kTile> static inline void tile_zero() { memset(tiles().t[kTile], 0, 1024); }
template <int kTile> static inline void tile_load(const void* p, size_t stride) {
  for (int r = 0; r < 16; r++) memcpy(tiles().t[kTile][r], (const char*)p + r * stride, 64);
}
template <int kTile> static inline void tile_store(void* p, size_t stride) {
  for (int r = 0; r < 16; r++) memcpy((char*)p + r * stride, tiles().t[kTile][r], 64);
}
// C[m][n] += sum over k of signed A[m][k] * unsigned B[k / 4][n * 4 + k % 4]
template <int kC, int kA, int kB> static inline void tile_dot_signed_unsigned() {
  for (int m = 0; m < 16; m++)
    for (int n = 0; n < 16; n++) {
      uint32_t sum;
      memcpy(&sum, &tiles().t[kC][m][n * 4], 4);
      for (int k = 0; k < 64; k++) sum += uint32_t(int32_t(tiles().t[kA][m][k]) * int32_t(uint8_t(tiles().t[kB][k / 4][n * 4 + k % 4])));
      memcpy(&tiles().t[kC][m][n * 4], &sum, 4);
    }
}

#else

// GCC 12's _tile_loadconfig declares only 8 bytes as input and may drop the other stores; hence the whole struct as operand.
static inline void configure_tiles() {
  const TileConfig config;
  __asm__ volatile("ldtilecfg %0" ::"m"(config) : "memory");
}
static inline void release_tiles() { __asm__ volatile("tilerelease" ::: "memory"); }
// Assembly instead of the intrinsics: those are macros that need literal tile numbers and declare no memory clobber.
template <int kTile> static inline void tile_zero() { __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile)); }
template <int kTile> static inline void tile_load(const void* p, size_t stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile> static inline void tile_store(void* p, size_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
}
template <int kC, int kA, int kB> static inline void tile_dot_signed_unsigned() {
  __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
}

#endif

}  // namespace ZL_ISA
