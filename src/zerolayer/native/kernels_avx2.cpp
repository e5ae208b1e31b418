// One kernel set; see kernels.hpp. The build gives this file the compiler flags of its instruction set.
#define ZL_ISA zl_avx2
#define ZL_USE_AVX2

#include "simd.hpp"
#include "dot_madd.hpp"
#include "float_ops.hpp"
#include "group_madd.hpp"
#include "group_ops.hpp"
#include "kernel_set.hpp"

const zl::KernelSet* zl::kernels_avx2() {
  return zl_avx2::kernel_set("avx2");
}
