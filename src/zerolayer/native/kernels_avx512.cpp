// One kernel set; see kernels.hpp. The build gives this file the compiler flags of its instruction set.
#define ZL_ISA zl_avx512
#define ZL_USE_AVX512

#include "simd.hpp"
#include "dot_madd.hpp"
#include "float_ops.hpp"

const zl::KernelSet* zl::kernels_avx512() {
  using namespace zl_avx512;
  static const KernelSet set{"avx512", quantise, gemm, rope, store_kv, attend, argmax, exp_sum, pack_tile};
  return &set;
}
