// One kernel set; see kernels.hpp. The build gives this file the compiler flags of its instruction set.
#define ZL_ISA zl_amx
#define ZL_USE_AVX512
#define ZL_USE_AMX

#include "simd.hpp"
#include "dot_vnni.hpp"
#include "dot_amx.hpp"
#include "float_ops.hpp"

const zl::KernelSet* zl::kernels_amx() {
  using namespace zl_amx;
  static const KernelSet set{"amx", quantise, gemm, rope, store_kv, attend, argmax, exp_sum, pack_tile};
  return &set;
}
