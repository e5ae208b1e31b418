// One kernel set; see kernels.hpp. The build gives this file the compiler flags of its instruction set.
#define ZL_ISA zl_amx
#define ZL_USE_AVX512
#define ZL_USE_AMX

#include "simd.hpp"
#include "dot_vnni.hpp"
#include "dot_amx.hpp"
#include "float_ops.hpp"
#include "group_vnni.hpp"
#include "group_ops.hpp"
#include "kernel_set.hpp"

const zl::KernelSet* zl::kernels_amx() {
  return zl_amx::kernel_set("amx");
}
