// Fine inputs (kernels.hpp): which they are, and their weights.
//
// Large inputs are those of the model and hardly depend on the text, so a run on a few fixed tokens finds them. It gives the same bits on
// every machine, hence so do the weights.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "engine.hpp"

namespace zl {
namespace {

constexpr int kTokens = 16;      // of the run: as many rows as there is room for in every engine
constexpr int kStride = 7919;    // a prime, so that the tokens are of all kinds
constexpr float kParts = 128.0f;

bool louder(float a, float b) { return std::isfinite(a) && (!std::isfinite(b) || a > b); }

// The `count` largest of energy, in the order of the inputs.
void choose(const std::vector<float>& energy, int count, int32_t* out) {
  std::vector<int32_t> inputs(energy.size());
  std::iota(inputs.begin(), inputs.end(), 0);
  std::stable_sort(inputs.begin(), inputs.end(), [&](int32_t a, int32_t b) { return louder(energy[a], energy[b]); });
  std::copy_n(inputs.begin(), count, out);
  std::sort(out, out + count);
}

}  // namespace

int Engine::find_fine() {
  require_weights();
  for (const Slot& slot : slots_)
    if (slot.open) throw std::invalid_argument("weights are refined before the first generation");
  if (refinable_.empty()) return 0;
  const int slot = limits_.slots - 1;
  slots_[slot].shared = 0;
  rows_.clear();
  logit_rows_.clear();
  decoding_ = 0;
  for (int i = 0; i < kTokens; i++) rows_.push_back({int32_t((1 + int64_t(i) * kStride) % shape_.vocabulary), slot, i});
  for (Refinable& refinable : refinable_) refinable.energy.assign(refinable.matrix->k, 0.0f);
  listening_ = true;
  run_rows();
  pool_.run(
      [](void* context, int thread) {
        Engine& engine = *static_cast<Engine*>(context);
        engine.listen(engine.head_, engine.x_, engine.width_, engine.head_norm_, thread);
      },
      this);
  listening_ = false;
  for (Refinable& refinable : refinable_) choose(refinable.energy, std::min(kFine, refinable.matrix->k), refinable.matrix->fine);
  return int(refinable_.size());
}

void Engine::pack_fine() {
  if (refinable_.empty() || refinable_.back().energy.empty()) throw std::invalid_argument("no matrix waits for the weights of its fine inputs");
  const size_t tile = size_t(16) * refinable_.back().matrix->k;
  std::vector<float> scratch(tile * pool_.size());
  struct Job { Engine* engine; float* scratch; size_t tile; } job{this, scratch.data(), tile};
  pool_.run(
      [](void* context, int thread) {
        const Job& j = *static_cast<Job*>(context);
        j.engine->pack_fine(j.engine->refinable_.back(), thread, j.scratch + thread * j.tile);
      },
      &job);
  refinable_.pop_back();
}

// Adds to the energy of the matrix's inputs what the rows at x are, each row in parts of its own: the first token of a text is often
// thousands of times as large as the others.
void Engine::listen(const Matrix& m, const float* x, size_t stride, const float* norm, int thread) {
  const auto refinable = std::find_if(refinable_.begin(), refinable_.end(), [&](const Refinable& one) { return one.matrix == &m; });
  if (refinable == refinable_.end()) return;
  const Span mine = share(m.k, thread, pool_.threads());
  for (size_t r = 0; r < rows_.size(); r++) {
    const float* row = x + r * stride;
    const auto square = [&](int i) { const float value = norm ? row[i] * norm[i] : row[i]; return value * value; };
    float whole = 1e-30f;
    for (int i = 0; i < m.k; i++) whole += square(i);
    for (int i = mine.begin; i < mine.end; i++) refinable->energy[i] += square(i) / whole;
  }
}

// This thread's share of a matrix's fine weights: what rounding to int8 left, in 128ths of the scale.
// `floats`: room for 16 rows.
void Engine::pack_fine(const Refinable& refinable, int thread, float* floats) {
  const Matrix& m = *refinable.matrix;
  const int count = std::min(kFine, m.k), coarse = m.k_coarse();
  const Span tiles = share(m.panels * 2, thread, pool_.threads());
  for (int tile = tiles.begin; tile < tiles.end; tile++) {
    read_rows(m, refinable.row_of, tile, floats);
    uint8_t* data = m.data + size_t(tile / 2) * m.panel_bytes() + (tile % 2) * 1024;
    const auto byte = [&](int output, int input) { return data + size_t(input / 64) * 2048 + input % 64 / 4 * 64 + output * 4 + input % 4; };
    for (int o = 0; o < 16; o++) {
      const float scale = m.scale[tile * 16 + o];
      if (!(scale > 0.0f)) continue;
      for (int i = 0; i < count; i++) {
        const int input = m.fine[i];
        const float rest = floats[size_t(o) * m.k + input] / scale - float(int(*byte(o, input)) - 128);
        *byte(o, coarse + i) = uint8_t(128 + int(std::lrintf(std::clamp(rest, -0.99f, 0.99f) * kParts)));
      }
    }
  }
}

}  // namespace zl
