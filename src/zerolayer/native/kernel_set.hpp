// The functions of one kernel set, put together.
#pragma once

#include "kernels.hpp"

namespace ZL_ISA {

static void gemm(const Matrix& m, const Activations& a, int rows, int begin, int end, Ahead& ahead, Epilogue epilogue, float* out, size_t stride) {
  if (m.kind == zl::Kind::kInt8) int8_gemm(m, a, rows, begin, end, ahead, epilogue, out, stride);
  else grouped_gemm(m, a, rows, begin, end, ahead, epilogue, out, stride);
}

static const zl::KernelSet* kernel_set(const char* name) {
  static const zl::KernelSet set{name, quantise, gemm, norm, rope, store_kv, attend, argmax, exp_sum, pack_tile};
  return &set;
}

}  // namespace ZL_ISA
