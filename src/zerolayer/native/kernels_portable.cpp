// One kernel set; see kernels.hpp. The build gives this file the compiler flags of its instruction set.
#define ZL_ISA zl_portable

#include "simd.hpp"
#include "dot_portable.hpp"
#include "float_ops.hpp"

const zl::KernelSet* zl::kernels_portable() {
  using namespace zl_portable;
  static const KernelSet set{"portable", quantise, gemm, rope, store_kv, attend, argmax, exp_sum, pack_tile};
  return &set;
}
