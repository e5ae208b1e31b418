// SHA-256 (FIPS 180-4) of short messages, by the processor's own instructions where it has them.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace zl {

using Sha256 = std::array<uint8_t, 32>;

Sha256 sha256(std::span<const uint8_t> data);
Sha256 sha256_portable(std::span<const uint8_t> data);

}  // namespace zl
