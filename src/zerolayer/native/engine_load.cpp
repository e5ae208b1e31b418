// Weights into the engine: GGUF tensors become packed panels, on all threads, in one pass.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <stdexcept>

#include "engine.hpp"
#include "pack_groups.hpp"

namespace zl {
namespace {

void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

void check(const Tensor& t, int rows, int columns) {
  require(t.rows == rows && t.columns == columns, "tensor shape does not match the model's configuration");
  require(row_bytes(t.type, size_t(columns)) > 0, "tensor type is not supported for this row length");
}

// Tensors that become one matrix; exactly kept, tiles of 16 rows have one type.
TensorType one_type(std::initializer_list<const Tensor*> tensors, bool exact) {
  const TensorType type = (*tensors.begin())->type;
  for (const Tensor* t : tensors) require(!exact || (exact_kind(t->type) == exact_kind(type) && t->type == type), "exact weights need one type in a matrix");
  return type;
}

// Whether all are finite, and their squares too: what is larger is no weight of any model, and a norm squares what it makes.
bool finite(const float* x, size_t n) {
  constexpr int32_t kSquareRoot = 0x5f800000;  // 2^64, of the first power of two that is no float
  int32_t most = 0;  // of the bits without the sign, which rise as the numbers do
  for (size_t i = 0; i < n; i++) {
    int32_t bits;
    memcpy(&bits, x + i, 4);
    most = std::max(most, bits & 0x7fffffff);
  }
  return most < kSquareRoot;
}

void require_finite(bool sound) {
  if (!sound) throw DamagedWeights("a weight is no finite number, or too large");
}

const float* sound(const float* x, int n) {
  require_finite(finite(x, size_t(n)));
  return x;
}

float* copy(Arena* arena, const float* source, int n) {
  sound(source, n);
  float* out = arena->take<float>(round_up(n, kAlignK));
  memcpy(out, source, size_t(n) * 4);
  return out;
}

}  // namespace

Matrix Engine::make_matrix(int n, int k, TensorType type, bool fine) {
  Matrix m;
  if (limits_.exact) m.kind = exact_kind(type);
  m.n = n;
  m.k = k;
  m.k_pad = round_up(k, kAlignK);
  m.panels = round_up(n, kPanel) / kPanel;
  if (fine && m.kind == Kind::kInt8) {
    m.fine = arena_.take<int32_t>(kFine);
    m.k_pad += kFine;
  }
  m.data = arena_.take<uint8_t>(m.panel_bytes() * m.panels);
  m.scale = arena_.take<float>(size_t(m.panels) * kPanel);
  if (m.kind != Kind::kInt8) std::fill_n(m.scale, size_t(m.panels) * kPanel, 1.0f);
  return m;
}

void Engine::pack(Matrix* m, const RowOf& row_of) {
  if (m->kind != Kind::kInt8) return pack_groups(m, row_of);
  std::erase_if(refinable_, [&](const Refinable& other) { return other.matrix == m; });
  if (m->fine) refinable_.push_back({m, row_of, {}});
  std::vector<float> scratch(size_t(pool_.size()) * 16 * m->k);  // here: what a thread of the pool throws, nobody catches
  struct Job { Engine* engine; Matrix* m; const RowOf* row_of; float* scratch; std::atomic<bool> sound{true}; } job{this, m, &row_of, scratch.data()};
  pool_.run(
      [](void* context, int thread) {
        Job& j = *static_cast<Job*>(context);
        float* const floats = j.scratch + size_t(thread) * 16 * j.m->k;
        const float* rows[16];
        for (int o = 0; o < 16; o++) rows[o] = floats + size_t(o) * j.m->k;
        const Span tiles = share(j.m->panels * 2, thread, j.engine->pool_.threads());
        for (int tile = tiles.begin; tile < tiles.end; tile++) {
          read_rows(*j.m, *j.row_of, tile, floats);
          if (!finite(floats, size_t(16) * j.m->k)) j.sound = false;
          uint8_t* data = j.m->data + size_t(tile / 2) * j.m->panel_bytes() + (tile % 2) * 1024;
          j.engine->kernels_->pack_tile(rows, j.m->k, j.m->k_pad, data, j.m->scale + tile * 16);
        }
      },
      &job);
  require_finite(job.sound);
}

// The 16 rows of a tile as floats [16, m.k].
void Engine::read_rows(const Matrix& m, const RowOf& row_of, int tile, float* out) {
  for (int o = 0; o < 16; o++, out += m.k) {
    const auto [tensor, row] = row_of(tile * 16 + o);
    if (tensor) dequantise_row(tensor->type, tensor->data + row_bytes(tensor->type, m.k) * row, m.k, out);
    else memset(out, 0, size_t(m.k) * sizeof(float));
  }
}

void Engine::pack_groups(Matrix* m, const RowOf& row_of) {
  struct Job { Engine* engine; Matrix* m; const RowOf* row_of; std::atomic<bool> finite{true}, small{true}; } job{this, m, &row_of};
  pool_.run(
      [](void* context, int thread) {
        Job& j = *static_cast<Job*>(context);
        const Span tiles = share(j.m->panels * 2, thread, j.engine->pool_.threads());
        for (int tile = tiles.begin; tile < tiles.end; tile++) {
          const uint8_t* rows[16];
          TensorType type = TensorType::kQ4_0;
          for (int o = 0; o < 16; o++) {
            const auto [tensor, row] = (*j.row_of)(tile * 16 + o);
            rows[o] = tensor ? tensor->data + row_bytes(tensor->type, j.m->k) * row : nullptr;
            if (tensor) type = tensor->type;
          }
          const Packed packed = pack_group_tile(type, rows, j.m->k / kGroup, j.m->data + tile * j.m->panel_bytes() / 2);
          if (packed == Packed::kNotFinite) j.finite = false;
          if (packed == Packed::kTooLarge) j.small = false;
        }
      },
      &job);
  require_finite(job.finite);
  require(job.small, "a block's scale is too large to be kept exactly; use --weights int8");
}

void Engine::load_qkv(int layer, const Tensor& q, const Tensor& k, const Tensor& v, bool interleaved) {
  check(q, shape_.query_width(), shape_.hidden);
  check(k, shape_.kv_width(), shape_.hidden);
  check(v, shape_.kv_width(), shape_.hidden);
  Matrix& m = layers_.at(layer).qkv = make_matrix(shape_.query_width() + 2 * shape_.kv_width(), shape_.hidden, one_type({&q, &k, &v}, limits_.exact), true);
  const int head_dim = shape_.head_dim, queries = shape_.query_width(), keys = shape_.kv_width();
  // GGUF's llama order holds dimension pairs (2i, 2i + 1); the rotary kernel wants (i, i + head_dim / 2).
  const auto halves = [head_dim, interleaved](int row) {
    if (!interleaved) return row;
    const int in_head = row % head_dim;
    return row - in_head + in_head % (head_dim / 2) * 2 + in_head / (head_dim / 2);
  };
  pack(&m, [=](int output) -> std::pair<const Tensor*, int> {
    if (output < queries) return {&q, halves(output)};
    output -= queries;
    if (output < keys) return {&k, halves(output)};
    output -= keys;
    if (output < keys) return {&v, output};
    return {nullptr, 0};
  });
}

void Engine::load_qkv_bias(int layer, const float* q, const float* k, const float* v) {
  Matrix& m = layers_.at(layer).qkv;
  require(m.data, "weights come before their bias");
  m.bias = arena_.take<float>(size_t(m.panels) * kPanel);
  memcpy(m.bias, sound(q, shape_.query_width()), size_t(shape_.query_width()) * 4);
  memcpy(m.bias + shape_.query_width(), sound(k, shape_.kv_width()), size_t(shape_.kv_width()) * 4);
  memcpy(m.bias + shape_.query_width() + shape_.kv_width(), sound(v, shape_.kv_width()), size_t(shape_.kv_width()) * 4);
}

void Engine::load_head_norms(int layer, const float* query, const float* key) {
  layers_.at(layer).query_norm = copy(&arena_, query, shape_.head_dim);
  layers_.at(layer).key_norm = copy(&arena_, key, shape_.head_dim);
}

void Engine::load_output(int layer, const Tensor& o) {
  check(o, shape_.hidden, shape_.query_width());
  Matrix& m = layers_.at(layer).output = make_matrix(o.rows, o.columns, o.type, false);
  pack(&m, [=](int output) -> std::pair<const Tensor*, int> { return {output < o.rows ? &o : nullptr, output}; });
}

// Tile 0 of a panel holds 16 gate rows, tile 1 the same 16 up rows, so that the epilogue has both sides of silu(gate) * up.
void Engine::load_gate_up(int layer, const Tensor& gate, const Tensor& up) {
  check(gate, shape_.intermediate, shape_.hidden);
  check(up, shape_.intermediate, shape_.hidden);
  Matrix& m = layers_.at(layer).gate_up = make_matrix(2 * round_up(shape_.intermediate, 16), shape_.hidden, one_type({&gate, &up}, limits_.exact), false);
  pack(&m, [=](int output) -> std::pair<const Tensor*, int> {
    const int row = output / 32 * 16 + output % 16;
    if (row >= gate.rows) return {nullptr, 0};
    return {output % 32 < 16 ? &gate : &up, row};
  });
}

void Engine::load_down(int layer, const Tensor& down) {
  check(down, shape_.hidden, shape_.intermediate);
  Matrix& m = layers_.at(layer).down = make_matrix(down.rows, down.columns, down.type, true);
  pack(&m, [=](int output) -> std::pair<const Tensor*, int> { return {output < down.rows ? &down : nullptr, output}; });
}

void Engine::load_norms(int layer, const float* attention, const float* mlp) {
  layers_.at(layer).attention_norm = copy(&arena_, attention, shape_.hidden);
  layers_.at(layer).mlp_norm = copy(&arena_, mlp, shape_.hidden);
}

void Engine::load_embedding(const Tensor& embedding, bool is_head) {
  check(embedding, shape_.vocabulary, shape_.hidden);
  if (!is_head) require_finite(is_finite(embedding));
  embedding_type_ = embedding.type;
  embedding_row_ = row_bytes(embedding.type, embedding.columns);
  embedding_ = arena_.take<uint8_t>(embedding_row_ * embedding.rows);
  memcpy(embedding_, embedding.data, embedding_row_ * embedding.rows);
}

bool Engine::is_finite(const Tensor& tensor) {
  std::vector<float> scratch(size_t(pool_.size()) * tensor.columns);
  struct Job { Engine* engine; const Tensor* tensor; float* scratch; std::atomic<bool> sound{true}; } job{this, &tensor, scratch.data()};
  pool_.run(
      [](void* context, int thread) {
        Job& j = *static_cast<Job*>(context);
        const Tensor& t = *j.tensor;
        float* const floats = j.scratch + size_t(thread) * t.columns;
        const Span rows = share(t.rows, thread, j.engine->pool_.threads());
        for (int row = rows.begin; row < rows.end; row++) {
          dequantise_row(t.type, t.data + row_bytes(t.type, t.columns) * row, t.columns, floats);
          if (!finite(floats, t.columns)) j.sound = false;
        }
      },
      &job);
  return job.sound;
}

void Engine::load_head(const Tensor& head, const float* norm) {
  check(head, shape_.vocabulary, shape_.hidden);
  head_ = make_matrix(head.rows, head.columns, head.type, true);
  head_norm_ = copy(&arena_, norm, shape_.hidden);
  pack(&head_, [=](int output) -> std::pair<const Tensor*, int> { return {output < head.rows ? &head : nullptr, output}; });
}

void Engine::load_rope_factors(const float* factors) {
  const int half = shape_.head_dim / 2;
  if (factors && std::find(sound(factors, half), factors + half, 0.0f) != factors + half) throw DamagedWeights("a frequency is divided by zero");
  for (int position = 0; position < padded_tokens_; position++)
    for (int i = 0; i < half; i++) {
      const double frequency = std::pow(double(shape_.rope_base), -2.0 * i / shape_.head_dim) / (factors ? double(factors[i]) : 1.0);
      cosine_[size_t(position) * half + i] = float(std::cos(position * frequency));
      sine_[size_t(position) * half + i] = float(std::sin(position * frequency));
    }
}

}  // namespace zl
