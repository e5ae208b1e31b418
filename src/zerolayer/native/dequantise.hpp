// Rows of GGUF tensors as floats. Block formats: github.com/ggml-org/ggml, docs/gguf.md and the type list of its specification.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zl {

// The numbers are GGUF's type ids.
enum class TensorType : int {
  kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8, kQ4_K = 12, kQ5_K = 13, kQ6_K = 14, kBF16 = 30
};

// Bytes of a row of n values; 0 for a type that is not read here or an n that is no whole number of blocks.
size_t row_bytes(TensorType type, size_t n);

// Writes n floats. The caller has checked row_bytes.
void dequantise_row(TensorType type, const uint8_t* row, size_t n, float* out);

}  // namespace zl
