// One kernel set; see kernels.hpp. The build gives this file the compiler flags of its instruction set.
#define ZL_ISA zl_vnni
#define ZL_USE_AVX512

#include "simd.hpp"
#include "dot_vnni.hpp"
#include "float_ops.hpp"

const zl::KernelSet* zl::kernels_vnni() {
  using namespace zl_vnni;
  static const KernelSet set{"vnni", quantise, gemm, rope, store_kv, attend, argmax, exp_sum, pack_tile};
  return &set;
}
