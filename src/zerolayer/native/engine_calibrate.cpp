// What the machine itself can do, on the engine's own threads: the floors that step times are compared with.
#include <atomic>
#include <chrono>
#include <stdexcept>

#include "engine.hpp"

namespace zl {
namespace {

int64_t elapsed_ns(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - since).count();
}

struct Region { const void* data; size_t bytes; };

// Sums [begin, end) of a region, in thirty-two lanes, so that the loads and not the additions are what is timed.
uint64_t read(const Region& region, size_t begin, size_t end) {
  const uint64_t* words = static_cast<const uint64_t*>(region.data);
  uint64_t sums[32] = {};
  for (size_t i = begin / 8; i + 32 <= end / 8; i += 32)
    for (size_t lane = 0; lane < 32; lane++) sums[lane] += words[i + lane];
  uint64_t sum = 0;
  for (const uint64_t lane : sums) sum += lane;
  return sum;
}

}  // namespace

int64_t Engine::read_once(int slots, int tokens) {
  require_weights();
  if (slots < 0 || slots > limits_.slots || tokens < 0 || tokens > limits_.slot_tokens) throw std::invalid_argument("no such context");
  std::vector<Region> regions;
  const auto add_matrix = [&](const Matrix& m) { regions.push_back({m.data, m.panel_bytes() * size_t(m.panels)}); };
  for (const Layer& layer : layers_) {
    add_matrix(layer.qkv);
    for (int slot = 0; slot < slots; slot++)
      for (int head = 0; head < shape_.kv_heads; head++) {
        const KvHead kv = slot_kv(layer, slot, head);
        const size_t n = size_t(tokens) * shape_.head_dim;
        regions.push_back({kv.keys, n * sizeof(int16_t)});
        regions.push_back({kv.values, n});
      }
    add_matrix(layer.output);
    add_matrix(layer.gate_up);
    add_matrix(layer.down);
  }
  add_matrix(head_);
  struct Job { const std::vector<Region>* regions; int threads; std::atomic<uint64_t> sum{0}; } job{&regions, pool_.size()};
  const auto begun = std::chrono::steady_clock::now();
  pool_.run(
      [](void* context, int thread) {
        Job& j = *static_cast<Job*>(context);
        uint64_t sum = 0;
        for (const Region& region : *j.regions) sum += read(region, region.bytes * thread / j.threads, region.bytes * (thread + 1) / j.threads);
        j.sum += sum;  // kept, so that no compiler leaves the reading out
      },
      &job);
  return elapsed_ns(begun);
}

size_t Engine::weight_bytes() const {
  size_t bytes = 0;
  const auto add = [&](const Matrix& m) { bytes += m.panel_bytes() * size_t(m.panels); };
  for (const Layer& layer : layers_) {
    add(layer.qkv);
    add(layer.output);
    add(layer.gate_up);
    add(layer.down);
  }
  add(head_);
  return bytes;
}

int64_t Engine::spin(int64_t turns) {
  struct Job { int64_t turns; std::atomic<uint64_t> sum{0}; } job{turns};
  const auto begun = std::chrono::steady_clock::now();
  pool_.run(
      [](void* context, int thread) {
        Job& j = *static_cast<Job*>(context);
        uint64_t x = uint64_t(thread) + 88172645463325252u;
        for (int64_t turn = 0; turn < j.turns; turn++) {  // xorshift64 (Marsaglia 2003): each turn needs the one before
          x ^= x << 13;
          x ^= x >> 7;
          x ^= x << 17;
        }
        j.sum += x;
      },
      &job);
  return elapsed_ns(begun);
}

int64_t Engine::products(int64_t turns) {
  require_weights();
  struct Job { const KernelSet* kernels; const Matrix* matrix; const Activations* rows; int64_t turns; };
  Job job{kernels_, &layers_.front().qkv, &activations_, turns};
  const auto begun = std::chrono::steady_clock::now();
  pool_.run(
      [](void* context, int) {
        constexpr int kRows = 12;  // a multiple of every kernel's row block; few enough to stay in the nearest caches with the panel
        const Job& j = *static_cast<Job*>(context);
        alignas(64) float out[kRows * kPanel] = {};
        Ahead ahead;
        ahead.after = j.matrix->data;
        for (int64_t turn = 0; turn < j.turns; turn++) j.kernels->gemm(*j.matrix, *j.rows, kRows, 0, 1, ahead, Epilogue::kStore, out, kPanel);
      },
      &job);
  return elapsed_ns(begun);
}

}  // namespace zl
