// One kernel set; see kernels.hpp. The build gives this file the compiler flags of its instruction set.
#define ZL_ISA zl_amx_emulated
#define ZL_USE_AVX2
#define ZL_USE_AMX
#define ZL_AMX_EMULATED

#include "simd.hpp"
#include "dot_madd.hpp"
#include "dot_amx.hpp"
#include "float_ops.hpp"
#include "group_madd.hpp"
#include "group_ops.hpp"
#include "kernel_set.hpp"

const zl::KernelSet* zl::kernels_amx_emulated() {
  return zl_amx_emulated::kernel_set("amx-emulated");
}
