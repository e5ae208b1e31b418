// GGUF blocks of 32 values into grouped weights: the file's numbers, only in another order.
#pragma once

#include "dequantise.hpp"
#include "kernels.hpp"

namespace zl {

// The kind that keeps `type` exactly. Throws std::invalid_argument where none does.
Kind exact_kind(TensorType type);

// One tile: 16 rows of `groups` blocks (null: a row of zeros) to `tile`. Throws std::invalid_argument for a scale that overflows.
void pack_group_tile(TensorType type, const uint8_t* const* rows, int groups, uint8_t* tile);

}  // namespace zl
