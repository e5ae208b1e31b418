// One kernel set; see kernels.hpp. The build gives this file the compiler flags of its instruction set.
#define ZL_ISA zl_portable

#include "simd.hpp"
#include "dot_portable.hpp"
#include "float_ops.hpp"
#include "group_portable.hpp"
#include "group_ops.hpp"
#include "kernel_set.hpp"

const zl::KernelSet* zl::kernels_portable() {
  return zl_portable::kernel_set("portable");
}
