#include "engine.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "bell.hpp"

namespace zl {
namespace {

void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

// Generous for every model there is, and small enough that no size of a buffer overflows.
Shape checked(const Shape& shape) {
  const auto within = [](int n, int most) { return n > 0 && n <= most; };
  require(within(shape.layers, 1 << 12) && within(shape.hidden, 1 << 18) && within(shape.intermediate, 1 << 20), "layers or widths are out of range");
  require(within(shape.vocabulary, 1 << 22), "the vocabulary is out of range");
  require(within(shape.heads, 1 << 12) && within(shape.kv_heads, shape.heads) && within(shape.head_dim, 1 << 10), "heads are out of range");
  require(shape.head_dim % 32 == 0, "head_dim must be a multiple of 32");
  require(shape.heads % shape.kv_heads == 0 && shape.group() <= 64, "query heads must be a multiple of kv heads, at most 64 times");
  return shape;
}

Limits checked(const Limits& limits) {
  const auto within = [](int n, int least, int most) { return n >= least && n <= most; };
  require(within(limits.slots, 1, 1 << 14) && within(limits.slot_tokens, 1, 1 << 21) && within(limits.chunk_tokens, 1, 1 << 14), "slots are out of range");
  require(within(limits.threads, 1, 1 << 12), "threads are out of range");
  require(within(limits.prefixes, 0, 1 << 14) && within(limits.prefix_tokens, 0, 1 << 21), "prefixes are out of range");
  require(limits.prefix_tokens % 16 == 0, "prefixes hold whole blocks of 16 tokens");
  return limits;
}

}  // namespace

Engine::Engine(const Shape& shape, const Limits& limits, const KernelSet* kernels)
    : shape_(checked(shape)), limits_(checked(limits)), kernels_(kernels), pool_(limits.threads), layers_(shape.layers) {
  padded_tokens_ = round_up(limits.slot_tokens, 16);
  const int rows = round_up(limits.slots + limits.chunk_tokens, 16);  // tiles compute whole blocks of 16 rows
  const int inputs = std::max({shape.hidden, shape.query_width(), shape.intermediate});
  width_ = round_up(shape.hidden, kAlignK);
  qkv_stride_ = round_up(shape.query_width() + 2 * shape.kv_width(), kAlignK);
  attended_stride_ = round_up(shape.query_width(), kAlignK);
  hidden_stride_ = round_up(shape.intermediate, kAlignK);
  logit_stride_ = round_up(shape.vocabulary, kPanel);
  activations_.stride = round_up(inputs, kAlignK) + (limits.exact ? 0 : kFine);
  activations_.sum_stride = activations_.stride / kBlockK + 1;
  activations_.hi = arena_.take<int8_t>(size_t(rows) * activations_.stride);
  activations_.lo = arena_.take<int8_t>(size_t(rows) * activations_.stride);
  activations_.words = arena_.take<int16_t>(size_t(rows) * activations_.stride);
  activations_.scale = arena_.take<float>(rows);
  if (limits.exact) activations_.group_sum = arena_.take<float>(size_t(rows) * activations_.stride / kGroup);
  activations_.sum = arena_.take<int32_t>(size_t(rows) * activations_.sum_stride);
  x_ = arena_.take<float>(rows * width_);
  qkv_ = arena_.take<float>(rows * qkv_stride_);
  attended_ = arena_.take<float>(rows * attended_stride_);
  hidden_ = arena_.take<float>(rows * hidden_stride_);
  logits_ = arena_.take<float>(limits.slots * logit_stride_);
  masks_ = arena_.take<uint32_t>(size_t(limits.slots) * mask_words());
  cosine_ = arena_.take<float>(size_t(padded_tokens_) * shape.head_dim / 2);
  sine_ = arena_.take<float>(size_t(padded_tokens_) * shape.head_dim / 2);
  // Of all layers in one piece: a layer's own would leave a part of each of the arena's blocks unused.
  const KvHead slots = take_kv(shape.layers * limits.slots, padded_tokens_), prefixes = take_kv(shape.layers * limits.prefixes, limits.prefix_tokens);
  for (int l = 0; l < shape.layers; l++) {
    const size_t heads = size_t(l) * shape.kv_heads;
    layers_[l] = Layer{};
    layers_[l].slots = offset(slots, heads * limits.slots * padded_tokens_, shape.head_dim);
    layers_[l].prefixes = offset(prefixes, heads * limits.prefixes * limits.prefix_tokens, shape.head_dim);
  }
  for (int s = 0; s < limits.slots; s++) slots_.emplace_back(shape.vocabulary, limits.slot_tokens, limits.seen);
  const int group = shape.group();
  const int most_seen = limits.seen == SeenKind::kExact ? std::min(limits.slot_tokens + 1, shape.vocabulary) : shape.vocabulary;
  for (int t = 0; t < limits.threads; t++) {
    AttentionScratch a;
    a.score_stride = padded_tokens_ + 16;  // off a multiple of 4096 bytes: rows of one group must not share cache sets
    a.prob_stride = padded_tokens_ + 64;
    a.query = arena_.take<int16_t>(size_t(group) * shape.head_dim);
    a.scores = arena_.take<int32_t>(size_t(group) * a.score_stride);
    a.weights = arena_.take<float>(size_t(group) * a.prob_stride);
    a.prob_hi = arena_.take<uint8_t>(size_t(group) * a.prob_stride);
    a.prob_lo = arena_.take<uint8_t>(size_t(group) * a.prob_stride);
    a.sums = arena_.take<int32_t>(size_t(group) * 2 * shape.head_dim);
    threads_.push_back({a, Sampler(kernels, shape.vocabulary, most_seen), {}, {}, {}});
    threads_.back().pieces.reserve(size_t(limits.slots) * shape.kv_heads * 4);
  }
  plan_.resize(limits.slots);
  rows_.reserve(rows);
  logit_rows_.reserve(rows);
  sampled_.reserve(limits.slots);
  scored_.reserve(limits.chunk_tokens);
  load_rope_factors(nullptr);
}

// Every page is written once, so that a request never waits for one and a machine without the memory fails now.
void Engine::touch(int part, int parts) {
  require(parts > 0 && part >= 0 && part < parts, "no such part");
  struct Job { Engine* engine; size_t part, parts; } job{this, size_t(part), size_t(parts)};
  pool_.run(
      [](void* context, int thread) {
        const Job& j = *static_cast<Job*>(context);
        constexpr size_t kPage = 4096;
        const size_t threads = size_t(j.engine->pool_.threads()), pieces = j.parts * threads, piece = j.part * threads + thread;
        for (const Arena::Block& block : j.engine->arena_.blocks()) {
          const size_t pages = block.bytes / kPage;
          volatile char* base = static_cast<volatile char*>(block.base);
          for (size_t page = pages * piece / pieces; page < pages * (piece + 1) / pieces; page++) base[page * kPage] = base[page * kPage];
        }
      },
      &job);
}

Engine::Slot& Engine::open_slot(int slot) {
  require(slot >= 0 && slot < limits_.slots && slots_[slot].open, "no such open slot");
  return slots_[slot];
}

void Engine::open(int slot, const int32_t* prompt, int tokens, int max_tokens, const SamplingParameters& sampling, std::vector<int32_t> stops,
                  int prompt_logprobs, int prefix, int shared, bool masked) {
  require(slot >= 0 && slot < limits_.slots && !slots_[slot].open, "the slot is not free");
  require(tokens > 0 && max_tokens > 0 && tokens <= limits_.slot_tokens && max_tokens <= limits_.slot_tokens - tokens, "prompt and output do not fit the slot");
  for (int i = 0; i < tokens; i++) require(prompt[i] >= 0 && prompt[i] < shape_.vocabulary, "token id outside the vocabulary");
  require(shared >= 0 && shared % 16 == 0 && shared < tokens, "a shared prefix is whole blocks of 16 tokens and leaves one to compute");
  require(shared == 0 || (prefix >= 0 && prefix < limits_.prefixes && shared <= limits_.prefix_tokens), "no such prefix");
  require(prompt_logprobs < 0 || shared == 0, "a prompt that is scored is computed as a whole");
  require(stops.size() <= kMaxStops && sampling.bias.size() <= kMaxBias, "too many stop tokens or biases");
  for (const int32_t stop : stops) require(stop >= 0 && stop < shape_.vocabulary, "stop token outside the vocabulary");
  for (const LogitBias& b : sampling.bias) require(b.token >= 0 && b.token < shape_.vocabulary, "biased token outside the vocabulary");
  Slot& s = slots_[slot];
  s.prompt_logprobs = prompt_logprobs;
  s.prefix = shared ? prefix : 0;
  s.shared = shared;
  s.prompt.assign(prompt, prompt + tokens);
  s.stops = std::move(stops);
  s.position = shared;
  s.produced = 0;
  s.max_tokens = max_tokens;
  s.sampling = sampling;
  s.masked = masked;
  s.unsound = false;
  if (sampling.has_penalty())
    for (const int32_t token : s.prompt) s.history.see_prompt(token);
  s.open = true;
}

void Engine::close(int slot) {
  require(slot >= 0 && slot < limits_.slots, "no such slot");
  slots_[slot].open = false;
  slots_[slot].history.clear();
}

int Engine::prefill_left(int slot) const {
  require(slot >= 0 && slot < limits_.slots && slots_[slot].open, "no such open slot");
  return std::max(0, int(slots_[slot].prompt.size()) - slots_[slot].position);
}

void Engine::require_weights() {
  if (complete_) return;
  bool complete = embedding_ && head_.data;
  for (const Layer& l : layers_) complete = complete && l.qkv.data && l.output.data && l.gate_up.data && l.down.data && l.attention_norm;
  require(complete, "weights are missing");
  complete_ = true;
}

const std::vector<Sampled>& Engine::step(const int32_t* decode, int decode_count, int prefill_slot, int prefill_tokens, Keeping keep) {
  rows_.clear();
  logit_rows_.clear();
  sampled_.clear();
  scored_.clear();
  require_weights();
  require(decode_count >= 0 && decode_count <= limits_.slots, "more decode rows than slots");
  require(prefill_tokens >= 0 && prefill_tokens <= limits_.chunk_tokens, "chunk is too long");
  for (int i = 0; i < decode_count; i++) {
    Slot& s = open_slot(decode[i]);
    require(s.produced > 0, "the slot's prompt is not complete");
    require(s.produced < s.max_tokens, "the slot has all its tokens");
    require(s.row == -1 || s.row >= i || decode[s.row] != decode[i], "a slot decodes one row a step");
    s.row = i;
    logit_rows_.push_back(int(rows_.size()));
    rows_.push_back({s.last, decode[i], s.position});
  }
  decoding_ = rows_.size();
  const bool prefill = prefill_slot >= 0 && prefill_tokens > 0;
  bool complete = false;
  if (prefill) {
    const Slot& s = open_slot(prefill_slot);
    const int left = int(s.prompt.size()) - s.position;
    require(prefill_tokens <= left, "chunk runs past the prompt");
    complete = prefill_tokens == left;
    for (int i = 0; i < prefill_tokens; i++) rows_.push_back({s.prompt[s.position + i], prefill_slot, s.position + i});
    if (s.prompt_logprobs >= 0) scored_.resize(prefill_tokens - complete);  // the last token is followed by the answer
    for (size_t i = 0; i < scored_.size(); i++) logit_rows_.push_back(int(decoding_ + i));
    if (complete) logit_rows_.push_back(int(rows_.size()) - 1);
  }
  require_keepable(keep, prefill ? slots_[prefill_slot].position + prefill_tokens : 0);
  if (rows_.empty()) return sampled_;
  sampled_.resize(decoding_ + complete);
  sampling_ = true;
  keep_ = keep;
  keep_slot_ = prefill_slot;
  run_rows();
  keep_ = {};
  for (int i = 0; i < decode_count; i++) slots_[decode[i]].position++;
  if (prefill) slots_[prefill_slot].position += prefill_tokens;
  for (const Choice& score : scored_) slots_[prefill_slot].unsound |= !score.sound;
  for (Sampled& sampled : sampled_) commit(sampled);
  ended_ns_ = now_ns();
  return sampled_;
}

// `read`: tokens of the slot's context when the step is over.
void Engine::require_keepable(Keeping keep, int read) const {
  if (keep.tokens == 0) return;
  require(keep.prefix >= 0 && keep.prefix < limits_.prefixes, "no such prefix");
  require(keep.tokens > 0 && keep.tokens % 16 == 0 && keep.tokens <= limits_.prefix_tokens && keep.tokens <= read, "the slot has no such prefix");
  for (const Slot& s : slots_) require(!s.open || s.shared == 0 || s.prefix != keep.prefix, "the prefix is in use");
}

void Engine::commit(Sampled& sampled) {
  Slot& s = slots_[sampled.slot];
  if (s.unsound) sampled.finish = Finish::kUnsound;
  s.last = sampled.choice.token;
  s.produced++;
  if (s.sampling.has_penalty()) s.history.see_output(s.last);
}

void Engine::logits(const int32_t* tokens, int count, float* out) {
  const int slot = limits_.slots - 1;
  require_weights();
  require(!slots_[slot].open, "the last slot is not free");
  require(count > 0 && count <= limits_.slot_tokens, "text does not fit the slot");
  for (int i = 0; i < count; i++) require(tokens[i] >= 0 && tokens[i] < shape_.vocabulary, "token id outside the vocabulary");
  const int chunk = std::min(limits_.slots, limits_.chunk_tokens);
  sampling_ = false;
  decoding_ = 0;
  slots_[slot].shared = 0;
  for (int begin = 0; begin < count; begin += chunk) {
    rows_.clear();
    logit_rows_.clear();
    for (int i = begin; i < std::min(begin + chunk, count); i++) {
      logit_rows_.push_back(int(rows_.size()));
      rows_.push_back({tokens[i], slot, i});
    }
    run_rows();
    for (size_t i = 0; i < rows_.size(); i++)
      memcpy(out + (begin + i) * size_t(shape_.vocabulary), logits_ + i * logit_stride_, size_t(shape_.vocabulary) * 4);
  }
}

KvHead Engine::take_kv(int contexts, int tokens) {
  const size_t n = size_t(contexts) * shape_.kv_heads * tokens;
  return {arena_.take<int16_t>(n * shape_.head_dim), arena_.take<int8_t>(n * shape_.head_dim), arena_.take<float>(n), arena_.take<float>(n)};
}

KvHead Engine::offset(const KvHead& base, size_t tokens, int head_dim) {
  return {base.keys + tokens * head_dim, base.values + tokens * head_dim, base.key_scale + tokens, base.value_scale + tokens};
}

KvHead Engine::slot_kv(const Layer& layer, int slot, int head) const {
  return offset(layer.slots, (size_t(slot) * shape_.kv_heads + head) * padded_tokens_, shape_.head_dim);
}

KvHead Engine::prefix_kv(const Layer& layer, int prefix, int head) const {
  return offset(layer.prefixes, (size_t(prefix) * shape_.kv_heads + head) * limits_.prefix_tokens, shape_.head_dim);
}

// After the keys and values of every row of the layer were stored. Each thread copies its share of the blocks of all heads.
void Engine::keep_prefix(const Layer& layer, int thread) {
  const Slot& s = slots_[keep_slot_];
  const Span blocks = share(keep_.tokens / 16, thread, pool_.threads());
  const int begin = 16 * blocks.begin, end = 16 * blocks.end, own = std::clamp(s.shared, begin, end);
  for (int head = 0; head < shape_.kv_heads; head++) {
    const KvHead to = prefix_kv(layer, keep_.prefix, head);
    copy_kv(prefix_kv(layer, s.prefix, head), to, begin, own);
    copy_kv(slot_kv(layer, keep_slot_, head), to, own, end);
  }
}

// Tokens [begin, end), both multiples of 16, at their position in both.
void Engine::copy_kv(const KvHead& from, const KvHead& to, int begin, int end) const {
  const size_t at = size_t(begin) * shape_.head_dim, n = size_t(end - begin) * shape_.head_dim;
  memcpy(to.keys + at, from.keys + at, n * sizeof(int16_t));
  memcpy(to.values + at, from.values + at, n);
  memcpy(to.key_scale + begin, from.key_scale + begin, size_t(end - begin) * sizeof(float));
  memcpy(to.value_scale + begin, from.value_scale + begin, size_t(end - begin) * sizeof(float));
}

}  // namespace zl
