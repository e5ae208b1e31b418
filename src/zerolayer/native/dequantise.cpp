#include "dequantise.hpp"

#include <cstring>

namespace zl {
namespace {

constexpr size_t kBlock = 32, kSuperBlock = 256;

template <class T>
T read(const uint8_t* p) {
  T value;
  memcpy(&value, p, sizeof value);
  return value;
}

// IEEE 754 half precision to single. Exact, subnormals included.
float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000) << 16, exponent = (half >> 10) & 31, mantissa = half & 1023;
  uint32_t bits;
  if (exponent == 0) {
    const float magnitude = float(mantissa) * 5.9604644775390625e-8f;  // 2^-24
    memcpy(&bits, &magnitude, 4);
    bits |= sign;
  } else {
    bits = sign | ((exponent == 31 ? 255 : exponent + 112) << 23) | (mantissa << 13);
  }
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

float bfloat_to_float(uint16_t half) {
  const uint32_t bits = uint32_t(half) << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

constexpr float kNone = -0.0f;  // the offset that changes no number, zeros of either sign included

// 16 low nibbles first, then 16 high ones; value = scale * (q + shift) + offset.
void nibbles(const uint8_t* packed, float scale, int shift, float offset, float* out) {
  for (size_t i = 0; i < 16; i++) out[i] = float(int(packed[i] & 15) + shift) * scale + offset;
  for (size_t i = 0; i < 16; i++) out[16 + i] = float(int(packed[i] >> 4) + shift) * scale + offset;
}

// The same with 32 fifth bits.
void fives(const uint8_t* fifth, const uint8_t* packed, float scale, int shift, float offset, float* out) {
  const uint32_t bits = read<uint32_t>(fifth);
  for (size_t i = 0; i < 16; i++) {
    out[i] = float(int(packed[i] & 15) + int(bits >> i & 1) * 16 + shift) * scale + offset;
    out[16 + i] = float(int(packed[i] >> 4) + int(bits >> (16 + i) & 1) * 16 + shift) * scale + offset;
  }
}

// Six-bit scale and minimum of sub-block j (32 values) out of the 12 bytes that Q4_K and Q5_K share.
void scale_and_minimum(const uint8_t* packed, size_t j, float* scale, float* minimum) {
  if (j < 4) {
    *scale = float(packed[j] & 63);
    *minimum = float(packed[j + 4] & 63);
  } else {
    *scale = float((packed[j + 4] & 15) | (packed[j - 4] >> 6 << 4));
    *minimum = float((packed[j + 4] >> 4) | (packed[j] >> 6 << 4));
  }
}

// Half scale, half minimum, 12 bytes of sub-block scales, for Q5_K (`fifth`) 32 bytes with bit j for sub-block j, 128 bytes of nibbles:
// the low ones of 32 bytes are one sub-block, the high ones the next.
void q4_q5_k(const uint8_t* block, bool fifth, float* out) {
  const float d = half_to_float(read<uint16_t>(block)), least = half_to_float(read<uint16_t>(block + 2));
  const uint8_t* high = block + 16;
  const uint8_t* packed = high + (fifth ? 32 : 0);
  for (size_t j = 0; j < 8; j++) {
    float scale, minimum;
    scale_and_minimum(block + 4, j, &scale, &minimum);
    scale = d * scale;
    minimum = least * minimum;
    for (size_t i = 0; i < 32; i++) {
      const int nibble = packed[j / 2 * 32 + i] >> (j % 2 * 4) & 15;
      out[j * 32 + i] = scale * float(nibble + (fifth ? (high[i] >> j & 1) * 16 : 0)) - minimum;
    }
  }
}

// 128 bytes of nibbles, 64 bytes of upper bit pairs, 16 signed scales (16 values each), half scale.
void q6_k(const uint8_t* block, float* out) {
  const float d = half_to_float(read<uint16_t>(block + 208));
  for (size_t i = 0; i < kSuperBlock; i++) {
    const size_t half = i / 128, part = i % 128 / 32, lane = i % 32;
    const int low = block[half * 64 + part % 2 * 32 + lane] >> (part / 2 * 4) & 15;
    const int upper = block[128 + half * 32 + lane] >> (part * 2) & 3;
    out[i] = d * float(int8_t(block[192 + i / 16])) * float((low | upper << 4) - 32);
  }
}

}  // namespace

size_t row_bytes(TensorType type, size_t n) {
  const size_t blocks = n % kBlock ? 0 : n / kBlock, super_blocks = n % kSuperBlock ? 0 : n / kSuperBlock;
  switch (type) {
    case TensorType::kF32: return n * 4;
    case TensorType::kF16: return n * 2;
    case TensorType::kBF16: return n * 2;
    case TensorType::kQ4_0: return blocks * 18;
    case TensorType::kQ4_1: return blocks * 20;
    case TensorType::kQ5_0: return blocks * 22;
    case TensorType::kQ5_1: return blocks * 24;
    case TensorType::kQ8_0: return blocks * 34;
    case TensorType::kQ4_K: return super_blocks * 144;
    case TensorType::kQ5_K: return super_blocks * 176;
    case TensorType::kQ6_K: return super_blocks * 210;
  }
  return 0;
}

void dequantise_row(TensorType type, const uint8_t* row, size_t n, float* out) {
  switch (type) {
    case TensorType::kF32: memcpy(out, row, n * 4); break;
    case TensorType::kF16:
      for (size_t i = 0; i < n; i++) out[i] = half_to_float(read<uint16_t>(row + i * 2));
      break;
    case TensorType::kBF16:
      for (size_t i = 0; i < n; i++) out[i] = bfloat_to_float(read<uint16_t>(row + i * 2));
      break;
    case TensorType::kQ4_0:  // half scale, 16 bytes; value = scale * (nibble - 8)
      for (size_t i = 0; i < n; i += kBlock, row += 18) nibbles(row + 2, half_to_float(read<uint16_t>(row)), -8, kNone, out + i);
      break;
    case TensorType::kQ4_1:  // half scale, half minimum, 16 bytes
      for (size_t i = 0; i < n; i += kBlock, row += 20)
        nibbles(row + 4, half_to_float(read<uint16_t>(row)), 0, half_to_float(read<uint16_t>(row + 2)), out + i);
      break;
    case TensorType::kQ5_0:  // half scale, fifth bits, 16 bytes; value = scale * (q - 16)
      for (size_t i = 0; i < n; i += kBlock, row += 22) fives(row + 2, row + 6, half_to_float(read<uint16_t>(row)), -16, kNone, out + i);
      break;
    case TensorType::kQ5_1:  // half scale, half minimum, fifth bits, 16 bytes
      for (size_t i = 0; i < n; i += kBlock, row += 24)
        fives(row + 4, row + 8, half_to_float(read<uint16_t>(row)), 0, half_to_float(read<uint16_t>(row + 2)), out + i);
      break;
    case TensorType::kQ4_K:
      for (size_t i = 0; i < n; i += kSuperBlock, row += 144) q4_q5_k(row, false, out + i);
      break;
    case TensorType::kQ5_K:
      for (size_t i = 0; i < n; i += kSuperBlock, row += 176) q4_q5_k(row, true, out + i);
      break;
    case TensorType::kQ6_K:
      for (size_t i = 0; i < n; i += kSuperBlock, row += 210) q6_k(row, out + i);
      break;
    case TensorType::kQ8_0:  // half scale, 32 signed bytes
      for (size_t i = 0; i < n; i += kBlock, row += 34) {
        const float scale = half_to_float(read<uint16_t>(row));
        for (size_t j = 0; j < kBlock; j++) out[i + j] = float(int8_t(row[2 + j])) * scale;
      }
      break;
  }
}

}  // namespace zl
