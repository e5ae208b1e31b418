#include "dequantise.hpp"

#include <cstring>

namespace zl {
namespace {

constexpr size_t kBlock = 32;

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

void nibbles(const uint8_t* packed, float scale, float offset, float* out) {  // 16 low nibbles first, then 16 high ones
  for (size_t i = 0; i < 16; i++) out[i] = float(packed[i] & 15) * scale + offset;
  for (size_t i = 0; i < 16; i++) out[16 + i] = float(packed[i] >> 4) * scale + offset;
}

}  // namespace

size_t row_bytes(TensorType type, size_t n) {
  const size_t blocks = n % kBlock ? 0 : n / kBlock;
  switch (type) {
    case TensorType::kF32: return n * 4;
    case TensorType::kF16: return n * 2;
    case TensorType::kBF16: return n * 2;
    case TensorType::kQ4_0: return blocks * 18;
    case TensorType::kQ4_1: return blocks * 20;
    case TensorType::kQ8_0: return blocks * 34;
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
      for (size_t i = 0; i < n; i += kBlock, row += 18) {
        const float scale = half_to_float(read<uint16_t>(row));
        nibbles(row + 2, scale, -8.0f * scale, out + i);
      }
      break;
    case TensorType::kQ4_1:  // half scale, half minimum, 16 bytes
      for (size_t i = 0; i < n; i += kBlock, row += 20)
        nibbles(row + 4, half_to_float(read<uint16_t>(row)), half_to_float(read<uint16_t>(row + 2)), out + i);
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
