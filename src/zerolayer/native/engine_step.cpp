// The step: every thread walks the same sequence of stages and takes its share of each; barriers stand where one stage reads what
// another thread wrote. No stage depends on which rows are beside a row, so a row's result does not either.
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "bell.hpp"
#include "engine.hpp"

namespace zl {
namespace {

// Products of a thread between two looks whether to offer its core: some 0.2 ms of them, and less while a bell is to be heard.
constexpr int64_t kPieceProducts = 20'000'000, kShortPieceProducts = 4'000'000;

}  // namespace

Engine::Span Engine::share(int items, int thread, int threads) {
  return {int(int64_t(items) * thread / threads), int(int64_t(items) * (thread + 1) / threads)};
}

void Engine::run_rows() {
  chunked_ = rows_.size() > 1 && rows_.back().slot == rows_[rows_.size() - 2].slot;  // the rows of a chunk are the last ones
  shift_.begin();
  for (stage_ = 0; stage_ < layers_.size() + !logit_rows_.empty(); stage_++) {
    pool_.run([](void* engine, int thread) { static_cast<Engine*>(engine)->run_stage(thread); }, this, shift_.threads());
    shift_.stage_ended();
  }
  shift_.end();
}

// A layer, or the head. Stages are where the number of threads may change.
void Engine::run_stage(int thread) {
  if (stage_ == layers_.size()) return head(thread);
  if (stage_ == 0) {
    const Span mine = share(int(rows_.size()), thread, pool_.threads());
    for (int r = mine.begin; r < mine.end; r++)
      dequantise_row(embedding_type_, embedding_ + embedding_row_ * rows_[r].token, shape_.hidden, x_ + r * width_);
    look_ahead(layers_[0], {&layers_[0].qkv}, thread);
  }
  project(layers_[stage_], thread);
  if (stage_ + 1 == layers_.size() && ends_early()) narrow(thread);
  else if (chunked_ || keep_.tokens) pool_.barrier(thread);  // else a thread reads only what it wrote itself: the rows are of different slots
  if (keep_.tokens) keep_prefix(layers_[stage_], thread);
  if (rows_.empty()) return;
  attention(layers_[stage_], thread);
  const Layer& layer = layers_[stage_];
  const Layer* const next = stage_ + 1 < layers_.size() ? &layers_[stage_ + 1] : nullptr;
  if (next) look_ahead(*next, {&layer.gate_up, &layer.down, &next->qkv}, thread);
  feed_forward(layer, next ? next->qkv : head_, thread);
}

void Engine::head(int thread) {
  // There is room for the logits of a row a slot; a chunk whose prompt is scored has more.
  for (size_t begin = 0; begin < logit_rows_.size(); begin += limits_.slots) {
    const size_t end = std::min(begin + limits_.slots, logit_rows_.size());
    const Span logits = share(int(end - begin), thread, pool_.threads());
    for (int i = logits.begin; i < logits.end; i++)
      kernels_->quantise(x_ + logit_rows_[begin + i] * width_, head_, head_norm_, shape_.rms_eps, activations_, i);
    pool_.barrier(thread);
    multiply(head_, layers_[0].qkv, int(end - begin), Epilogue::kStore, logits_, logit_stride_, thread);
    pool_.barrier(thread);
    if (sampling_) sample(begin, end, thread);
  }
}

void Engine::ring(int bell) {
  rung_ns_ = now_ns();
  bell_.store(bell, std::memory_order_release);
  eventfd_write(bell, 1);
  give_way(0);
}

void Engine::give_way(int thread) {
  Offers& offers = threads_[thread].offers;
  const int64_t now = now_ns();
  if (!offers.looks(now)) return;
  const int bell = bell_.load(std::memory_order_acquire);
  const bool unheard = bell >= 0 && is_unheard(bell);
  if (bell >= 0 && !unheard) bell_.store(-1, std::memory_order_relaxed);
  if (!offers.due(now, unheard ? now - rung_ns_ : -1)) return;
  sched_yield();
  offers.made(now, now_ns());
}

// Whether there are rows of which only the keys and values are needed: the last layer gives them nothing more.
bool Engine::ends_early() const { return !listening_ && logit_rows_.size() < rows_.size(); }

// From here on only the rows of logit_rows_ are left, which are ascending.
void Engine::narrow(int thread) {
  pool_.barrier(thread);
  if (thread == 0) {
    for (size_t i = 0; i < logit_rows_.size(); i++) {
      const size_t row = logit_rows_[i];
      logit_rows_[i] = int(i);
      rows_[i] = rows_[row];
      memmove(x_ + i * width_, x_ + row * width_, shape_.hidden * sizeof(float));
      memmove(qkv_ + i * qkv_stride_, qkv_ + row * qkv_stride_, shape_.query_width() * sizeof(float));
    }
    rows_.resize(logit_rows_.size());
  }
  pool_.barrier(thread);
}

// Queries, keys and values; these go to the cache.
void Engine::project(const Layer& layer, int thread) {
  const int rows = int(rows_.size()), head_dim = shape_.head_dim, group = shape_.group();
  quantise_rows(x_, width_, layer.qkv, layer.attention_norm, thread);
  multiply(layer.qkv, layer.output, rows, Epilogue::kStore, qkv_, qkv_stride_, thread);
  pool_.barrier(thread);
  for (int unit = thread; unit < rows * shape_.kv_heads; unit += pool_.threads()) {
    const int head = unit / rows;
    const Row& row = rows_[unit % rows];
    const float* cosine = cosine_ + size_t(row.position) * head_dim / 2;
    const float* sine = sine_ + size_t(row.position) * head_dim / 2;
    float* queries = qkv_ + (unit % rows) * qkv_stride_ + size_t(head) * group * head_dim;
    float* key = qkv_ + (unit % rows) * qkv_stride_ + shape_.query_width() + head * head_dim;
    if (layer.query_norm) norm_heads(layer, queries, key);
    for (int g = 0; g < group; g++) kernels_->rope(queries + g * head_dim, head_dim, cosine, sine);
    kernels_->rope(key, head_dim, cosine, sine);
    kernels_->store_kv(slot_kv(layer, row.slot, head), head_dim, row.position, key, key + shape_.kv_width());
  }
}

void Engine::attention(const Layer& layer, int thread) {
  const int rows = int(rows_.size()), head_dim = shape_.head_dim, group = shape_.group();
  for (int unit = thread; unit < rows * shape_.kv_heads; unit += pool_.threads()) {
    give_way(thread);
    const int head = unit / rows;
    const Row& row = rows_[unit % rows];
    const size_t at = size_t(head) * group * head_dim;
    const Slot& slot = slots_[row.slot];
    const KvHead own = slot_kv(layer, row.slot, head);
    const KvHead prefix = slot.shared ? prefix_kv(layer, slot.prefix, head) : own;
    kernels_->attend(prefix, slot.shared, own, head_dim, group, row.position + 1, qkv_ + (unit % rows) * qkv_stride_ + at,
                     attended_ + (unit % rows) * attended_stride_ + at, threads_[thread].attention);
  }
  pool_.barrier(thread);
  quantise_rows(attended_, attended_stride_, layer.output, nullptr, thread);
  multiply(layer.output, layer.gate_up, rows, Epilogue::kAdd, x_, width_, thread);
  pool_.barrier(thread);
}

void Engine::norm_heads(const Layer& layer, float* queries, float* key) {
  const int head_dim = shape_.head_dim;
  for (int g = 0; g < shape_.group(); g++) kernels_->norm(queries + g * head_dim, head_dim, layer.query_norm, shape_.rms_eps);
  kernels_->norm(key, head_dim, layer.key_norm, shape_.rms_eps);
}

// What this thread reads of contexts in a layer is fetched while it multiplies the matrices before that. The rows of a chunk share theirs.
void Engine::look_ahead(const Layer& layer, std::initializer_list<const Matrix*> matrices, int thread) {
  std::vector<Ahead::Piece>& pieces = threads_[thread].pieces;
  pieces.clear();
  const auto add = [&](const void* at, size_t bytes) { pieces.push_back({static_cast<const char*>(at), int(bytes / 64 + 1)}); };
  for (int head = 0; head < shape_.kv_heads; head++)
    for (size_t r = 0; r < decoding_; r++) {
      if ((head * rows_.size() + r) % pool_.threads() != size_t(thread)) continue;
      const int begin = slots_[rows_[r].slot].shared;  // what is shared is read by many
      const KvHead kv = offset(slot_kv(layer, rows_[r].slot, head), begin, shape_.head_dim);
      const size_t tokens = rows_[r].position - begin;
      add(kv.keys, tokens * shape_.head_dim * sizeof(int16_t));
      add(kv.values, tokens * shape_.head_dim);
      add(kv.key_scale, tokens * sizeof(float));
      add(kv.value_scale, tokens * sizeof(float));
    }
  Ahead& ahead = threads_[thread].ahead = {};
  ahead.piece = pieces.data();
  ahead.end = ahead.piece + pieces.size();
  for (const Matrix* m : matrices) {
    const Span mine = share(m->panels, thread, pool_.threads());
    ahead.products += int64_t(mine.end - mine.begin) * m->k_pad;
  }
}

void Engine::feed_forward(const Layer& layer, const Matrix& next, int thread) {
  const int rows = int(rows_.size());
  quantise_rows(x_, width_, layer.gate_up, layer.mlp_norm, thread);
  multiply(layer.gate_up, layer.down, rows, Epilogue::kSiluMul, hidden_, hidden_stride_, thread);
  pool_.barrier(thread);
  quantise_rows(hidden_, hidden_stride_, layer.down, nullptr, thread);
  multiply(layer.down, next, rows, Epilogue::kAdd, x_, width_, thread);
}

void Engine::quantise_rows(const float* x, size_t stride, const Matrix& m, const float* norm, int thread) {
  const Span mine = share(int(rows_.size()), thread, pool_.threads());
  for (int r = mine.begin; r < mine.end; r++) kernels_->quantise(x + r * stride, m, norm, shape_.rms_eps, activations_, r);
  pool_.barrier(thread);
  if (listening_) listen(m, x, stride, norm, thread);
}

// In pieces, between which the core is offered. No output depends on another one.
void Engine::multiply(const Matrix& m, const Matrix& next, int rows, Epilogue epilogue, float* out, size_t stride, int thread) {
  const Span mine = share(m.panels, thread, pool_.threads());
  const int64_t products = int64_t(rows) * m.k_pad * kPanel;
  Ahead& ahead = threads_[thread].ahead;
  for (int begin = mine.begin, end; begin < mine.end; begin = end) {
    give_way(thread);
    const int64_t piece = (bell_.load(std::memory_order_relaxed) < 0 ? kPieceProducts : kShortPieceProducts) / products;
    end = int(std::min<int64_t>(begin + std::max<int64_t>(1, piece), mine.end));
    ahead.after = end < mine.end ? m.data + m.panel_bytes() * end : next.data + next.panel_bytes() * share(next.panels, thread, pool_.threads()).begin;
    kernels_->gemm(m, activations_, rows, begin, end, ahead, epilogue, out, stride);
  }
}

// Logits lie from row `begin` of logit_rows_ on.
void Engine::sample(size_t begin, size_t end, int thread) {
  for (size_t i = begin + thread; i < end; i += pool_.threads()) {
    give_way(thread);
    const Row& row = rows_[logit_rows_[i]];
    const int slot = row.slot;
    const Slot& s = slots_[slot];
    float* logits = logits_ + (i - begin) * logit_stride_;
    Sampler& sampler = threads_[thread].sampler;
    if (i >= decoding_ && i - decoding_ < scored_.size()) {
      scored_[i - decoding_] = sampler.score(logits, s.prompt[row.position + 1], s.prompt_logprobs);
      continue;
    }
    Sampled& out = sampled_[std::min(i, sampled_.size() - 1)];
    out.slot = slot;
    out.choice = sampler.choose(logits, s.sampling, s.history, s.stops, s.produced, s.masked ? masks_ + size_t(slot) * mask_words() : nullptr);
    out.has_logprob = s.sampling.top_logprobs >= 0;
    out.finish = Finish::kNone;
    if (!out.choice.sound) out.finish = Finish::kUnsound;
    else if (std::find(s.stops.begin(), s.stops.end(), out.choice.token) != s.stops.end()) out.finish = Finish::kStop;
    else if (s.produced + 1 >= s.max_tokens) out.finish = Finish::kLength;
  }
}

}  // namespace zl
