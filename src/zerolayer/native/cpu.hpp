// Which kernel sets this processor and this kernel allow.
#pragma once

#include <string>
#include <vector>

#include "kernels.hpp"

namespace zl {

// Best first. The portable set is always there.
std::vector<const KernelSet*> supported_kernels();

// A supported set by name, or "amx-emulated" (x86-64 with AVX2: a software model of the tiles, for tests only); null if there is none.
const KernelSet* find_kernels(const std::string& name);

}  // namespace zl
