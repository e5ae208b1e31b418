#include "pack_groups.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace zl {
namespace {

uint16_t read_half(const uint8_t* p) {
  uint16_t half;
  memcpy(&half, p, 2);
  return half;
}

constexpr uint16_t kInfinity = 0x7c00;

bool finite(uint16_t half) { return (half & kInfinity) != kInfinity; }

// half * -2^shift, exactly: the exponent moves, a subnormal's mantissa too. Infinity where that is too large.
uint16_t scaled(uint16_t half, int shift) {
  const uint16_t sign = ~half & 0x8000;
  int exponent = (half >> 10) & 31, mantissa = half & 1023;
  if (exponent == 0 && mantissa == 0) return half;
  if (exponent == 0) exponent = 1;
  else mantissa |= 1024;
  for (; mantissa < 1024 && shift > 0; shift--) mantissa *= 2;
  exponent += shift;
  if (exponent >= 31) return uint16_t(sign | kInfinity);
  if (mantissa < 1024) exponent = 0;
  return uint16_t(sign | exponent << 10 | (mantissa & 1023));
}

// q values of one block, one byte each, and d and m of weight = d * q + m.
void read_block(TensorType type, const uint8_t* block, uint8_t* q, uint16_t* d, uint16_t* m) {
  *d = read_half(block);
  if (type == TensorType::kQ8_0) {
    *m = scaled(*d, 7);  // q + 128 is stored: m = -128 d
    for (int i = 0; i < kGroup; i++) q[i] = uint8_t(block[2 + i] + 128);
    return;
  }
  *m = type == TensorType::kQ4_0 ? scaled(*d, 3) : read_half(block + 2);  // Q4_0: m = -8 d
  const uint8_t* packed = block + (type == TensorType::kQ4_0 ? 2 : 4);
  for (int i = 0; i < 16; i++) {
    q[i] = packed[i] & 15;
    q[16 + i] = packed[i] >> 4;
  }
}

}  // namespace

Kind exact_kind(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
    case TensorType::kQ4_1: return Kind::kNibbles;
    case TensorType::kQ8_0: return Kind::kBytes;
    default: throw std::invalid_argument("exact weights need tensors of type Q4_0, Q4_1 or Q8_0");
  }
}

Packed pack_group_tile(TensorType type, const uint8_t* const* rows, int groups, uint8_t* tile) {
  const Kind kind = exact_kind(type);
  Packed packed = Packed::kSound;
  const size_t block = row_bytes(type, kGroup), bytes = group_bytes(kind);
  for (int group = 0; group < groups; group++, tile += bytes) {
    memset(tile, 0, bytes);
    for (int o = 0; o < 16; o++) {
      if (!rows[o]) continue;
      uint8_t q[kGroup];
      uint16_t d, m;
      read_block(type, rows[o] + block * group, q, &d, &m);
      if (!finite(d)) packed = Packed::kNotFinite;
      else if (!finite(m)) packed = std::max(packed, type == TensorType::kQ4_1 ? Packed::kNotFinite : Packed::kTooLarge);
      for (int i = 0; i < kGroup; i++) {
        const int quad = i / 4;
        if (kind == Kind::kNibbles) tile[quad / 2 * 64 + o * 4 + i % 4] |= uint8_t(q[i] << (quad % 2 * 4));
        else tile[quad * 64 + o * 4 + i % 4] = q[i];
      }
      memcpy(tile + bytes - 64 + o * 2, &d, 2);
      memcpy(tile + bytes - 32 + o * 2, &m, 2);
    }
  }
  return packed;
}

}  // namespace zl
