// A small random model for native tests, and the random numbers that it is made of.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cpu.hpp"
#include "engine.hpp"

struct Random {
  uint64_t state;
  explicit Random(uint64_t seed) : state(seed) {}
  uint32_t bits() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return uint32_t(state >> 32);
  }
  float between(float low, float high) { return low + (high - low) * (float(bits() >> 8) * 0x1.0p-24f); }
};

inline std::vector<float> random_floats(Random* random, size_t n, float size) {
  std::vector<float> out(n);
  for (float& x : out) x = random->between(-size, size);
  return out;
}

inline std::vector<const zl::KernelSet*> all_sets() {
  std::vector<const zl::KernelSet*> sets = zl::supported_kernels();
  if (const zl::KernelSet* emulated = zl::find_kernels("amx-emulated")) sets.push_back(emulated);
  return sets;
}

// A small random model with shapes that need padding everywhere: F32 tensors, or quantised ones (`exact`).
struct SmallModel {
  static constexpr int kLayers = 2, kHidden = 96, kHeads = 6, kKvHeads = 2, kHeadDim = 32, kIntermediate = 224, kVocabulary = 301;
  zl::Shape shape{kLayers, kHidden, kHeads, kKvHeads, kHeadDim, kIntermediate, kVocabulary, 1e-5f, 10000.0f};
  bool exact = false;

  // Random blocks: halves between 2^-7 and 2^-6 for scales and minus eight times as much for minima, any bytes for values.
  static void fill_blocks(Random* random, zl::TensorType type, std::vector<uint8_t>* out) {
    const size_t block = zl::row_bytes(type, 32);
    for (size_t at = 0; at < out->size(); at += block) {
      for (size_t i = at; i < at + block; i++) (*out)[i] = uint8_t(random->bits());
      const uint16_t scale = uint16_t(0x2000 | (random->bits() & 0x3ff)), minimum = uint16_t(0xac00 | (random->bits() & 0x3ff));
      memcpy(out->data() + at, &scale, 2);
      if (type == zl::TensorType::kQ4_1) memcpy(out->data() + at + 2, &minimum, 2);
    }
  }

  zl::Tensor matrix(Random* random, zl::TensorType type, int rows, int columns, std::vector<uint8_t>* hold) const {
    if (!exact) type = zl::TensorType::kF32;
    hold->assign(zl::row_bytes(type, columns) * rows, 0);
    if (exact) {
      fill_blocks(random, type, hold);
    } else {
      const std::vector<float> values = random_floats(random, size_t(rows) * columns, 1.7f / std::sqrt(float(columns)));
      memcpy(hold->data(), values.data(), hold->size());
    }
    return {type, hold->data(), rows, columns};
  }

  void load(zl::Engine* engine) const {
    using Type = zl::TensorType;
    Random random(7);
    std::vector<uint8_t> held[kLayers][7], embedding_held;  // until the engine has refined its weights
    for (int layer = 0; layer < kLayers; layer++) {
      auto& [a, b, c, d, e, f, g] = held[layer];
      const zl::Tensor q = matrix(&random, Type::kQ4_1, kHeads * kHeadDim, kHidden, &a), k = matrix(&random, Type::kQ4_1, kKvHeads * kHeadDim, kHidden, &b),
                       v = matrix(&random, Type::kQ4_1, kKvHeads * kHeadDim, kHidden, &c);
      engine->load_qkv(layer, q, k, v, true);
      engine->load_output(layer, matrix(&random, Type::kQ4_0, kHidden, kHeads * kHeadDim, &d));
      const zl::Tensor gate = matrix(&random, Type::kQ4_1, kIntermediate, kHidden, &e), up = matrix(&random, Type::kQ4_1, kIntermediate, kHidden, &f);
      engine->load_gate_up(layer, gate, up);
      engine->load_down(layer, matrix(&random, Type::kQ8_0, kHidden, kIntermediate, &g));
      const std::vector<float> attention = random_floats(&random, kHidden, 1.0f), mlp = random_floats(&random, kHidden, 1.0f);
      engine->load_norms(layer, attention.data(), mlp.data());
    }
    const zl::Tensor embedding = matrix(&random, Type::kQ8_0, kVocabulary, kHidden, &embedding_held);
    engine->load_embedding(embedding);
    const std::vector<float> norm = random_floats(&random, kHidden, 1.0f);
    engine->load_head(embedding, norm.data());
    for (int left = engine->find_fine(); left > 0; left--) engine->pack_fine();
  }
};
