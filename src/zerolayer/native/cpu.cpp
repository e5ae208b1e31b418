#include "cpu.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace zl {
namespace {

#if defined(__x86_64__)
bool has_amx() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;
  if ((edx & kTile) == 0 || (edx & kInt8) == 0) return false;
  // Linux gives the 8 KB of tile state only to a process that asks: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA).
  return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"); }

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq");
}
#endif

}  // namespace

std::vector<const KernelSet*> supported_kernels() {
  std::vector<const KernelSet*> sets;
#if defined(__x86_64__)
  if (has_avx512() && __builtin_cpu_supports("avx512vnni")) {
    if (has_amx()) sets.push_back(kernels_amx());
    sets.push_back(kernels_vnni());
  }
  if (has_avx512()) sets.push_back(kernels_avx512());
  if (has_avx2()) sets.push_back(kernels_avx2());
#endif
  sets.push_back(kernels_portable());
  return sets;
}

const KernelSet* find_kernels(const std::string& name) {
  for (const KernelSet* set : supported_kernels())
    if (name == set->name) return set;
#if defined(__x86_64__)
  if (name == "amx-emulated" && has_avx2()) return kernels_amx_emulated();
#endif
  return nullptr;
}

}  // namespace zl
