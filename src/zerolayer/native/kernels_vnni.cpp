// One kernel set; see kernels.hpp. The build gives this file the compiler flags of its instruction set.
#define ZL_ISA zl_vnni
#define ZL_USE_AVX512

#include "simd.hpp"
#include "dot_vnni.hpp"
#include "float_ops.hpp"
#include "group_vnni.hpp"
#include "group_ops.hpp"
#include "kernel_set.hpp"

const zl::KernelSet* zl::kernels_vnni() {
  return zl_vnni::kernel_set("vnni");
}
