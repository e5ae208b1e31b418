// GGUF blocks of 32 values into grouped weights: the file's numbers, only in another order.
#pragma once

#include "dequantise.hpp"
#include "kernels.hpp"

namespace zl {

// The kind that keeps `type` exactly. Throws std::invalid_argument where none does.
Kind exact_kind(TensorType type);

// What became of a tile: a scale may be no number, or too large for the half that keeps it.
enum class Packed { kSound = 0, kTooLarge = 1, kNotFinite = 2 };

// One tile: 16 rows of `groups` blocks (null: a row of zeros) to `tile`.
Packed pack_group_tile(TensorType type, const uint8_t* const* rows, int groups, uint8_t* tile);

}  // namespace zl
