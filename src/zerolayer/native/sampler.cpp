#include "sampler.hpp"

#include <algorithm>
#include <cmath>

namespace zl {
namespace {

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

constexpr int kBlock = 256;  // of KernelSet::exp_sum
constexpr float kNever = -1e30f;  // a logit with the weight 0, whatever penalties make of it

}  // namespace

double uniform(uint64_t seed, uint64_t position) {
  const uint64_t bits = mix(mix(seed + 0x9e3779b97f4a7c15u) + (position + 1) * 0x9e3779b97f4a7c15u);
  return double(bits >> 11) * 0x1.0p-53;
}

TokenHistory::TokenHistory(int vocabulary, int output, SeenKind kind)
    : vocabulary_(vocabulary), kind_(kind), bits_((kind == SeenKind::kBloom ? kBloomBits : vocabulary + 63) / 64), count_(vocabulary) {
  output_.reserve(output);
}

void TokenHistory::see_prompt(int token) {
  if (kind_ == SeenKind::kExact) {
    bits_[token / 64] |= uint64_t(1) << (token % 64);
    return;
  }
  const uint64_t h = hash(token);
  for (int i = 0; i < kHashes; i++) bits_[bit_of(h, i) / 64] |= uint64_t(1) << (bit_of(h, i) % 64);
}

void TokenHistory::see_output(int token) {
  see_prompt(token);
  if (count_[token] == 0) output_.push_back(token);
  if (count_[token] < kMost) count_[token]++;
}

void TokenHistory::clear() {
  for (const int32_t token : output_) count_[token] = 0;
  output_.clear();
  std::fill(bits_.begin(), bits_.end(), 0);
}

Sampler::Sampler(const KernelSet* kernels, int vocabulary, int most_seen)
    : kernels_(kernels), vocabulary_(vocabulary), weights_(round_up(vocabulary, 16)), block_sums_(vocabulary / kBlock + 1) {
  candidates_.reserve(vocabulary);
  saved_.reserve(most_seen + kMaxBias + kMaxStops);
}

Choice Sampler::choose(float* logits, const SamplingParameters& p, const TokenHistory& history, const std::vector<int32_t>& stops,
                       int position) {
  Choice choice;
  const bool changed = p.changes_logits();
  if (changed) {
    for (const LogitBias& b : p.bias) set(logits, b.token, logits[b.token] + b.bias);
    if (position < p.min_tokens)
      for (const int32_t stop : stops) set(logits, stop, kNever);
    if (p.has_penalty()) penalise(logits, p, history);
  }
  choice.token = p.temperature == 0.0f ? kernels_->argmax(logits, vocabulary_) : draw(logits, p, position);
  if (changed) restore(logits);
  if (p.top_logprobs >= 0) report(logits, p.top_logprobs, &choice);
  return choice;
}

int Sampler::penalise(float* logits, const SamplingParameters& p, const TokenHistory& history) {
  const size_t before = saved_.size();
  history.each_seen([&](int32_t token) {
    float x = logits[token];
    x = x > 0.0f ? x / p.repetition_penalty : x * p.repetition_penalty;
    const int count = history.output_count(token);
    if (count > 0) x -= p.presence_penalty + p.frequency_penalty * float(count);
    set(logits, token, x);
  });
  return int(saved_.size() - before);
}

void Sampler::set(float* logits, int32_t token, float x) {
  saved_.push_back({logits[token], token});
  logits[token] = x;
}

// Backwards: what was changed twice gets its first value.
void Sampler::restore(float* logits) {
  for (size_t i = saved_.size(); i > 0; i--) logits[saved_[i - 1].token] = saved_[i - 1].logit;
  saved_.clear();
}

Choice Sampler::score(const float* logits, int token, int top_logprobs) {
  Choice choice;
  choice.token = token;
  report(logits, top_logprobs, &choice);
  return choice;
}

int Sampler::draw(const float* logits, const SamplingParameters& p, int position) {
  const float top = logits[kernels_->argmax(logits, vocabulary_)];
  const float total = kernels_->exp_sum(logits, vocabulary_, top, 1.0f / p.temperature, weights_.data(), block_sums_.data());
  const double u = uniform(p.seed, position);
  if (p.top_p >= 1.0f && p.top_k == 0 && p.min_p == 0.0f) return draw_plain(total, u);
  return draw_truncated(p, total, u);
}

// Walks block sums first, then one block, so that 49,152 weights are not added one by one.
int Sampler::draw_plain(float total, double u) const {
  float left = float(u * total);
  int block = 0;
  const int blocks = (vocabulary_ + kBlock - 1) / kBlock;
  while (block + 1 < blocks && left >= block_sums_[block]) left -= block_sums_[block++];
  int last = block * kBlock;
  for (int i = block * kBlock; i < std::min((block + 1) * kBlock, vocabulary_); i++) {
    if (weights_[i] <= 0.0f) continue;
    last = i;
    left -= weights_[i];
    if (left < 0.0f) break;
  }
  return last;  // rounding may leave a little mass: it goes to the last token that has any
}

int Sampler::draw_truncated(const SamplingParameters& p, float total, double u) {
  // The largest weight is 1. Few tokens lie within 9 nats of it; only if they do not hold what top-k or top-p asks for, look further.
  constexpr float kFloors[] = {1.2340980e-4f, 1.1253517e-7f, 0.0f};  // e^-9, e^-16, all
  float mass = 0.0f;
  for (const float floor : kFloors) {
    gather(p.min_p > 0.0f ? p.min_p : floor);
    mass = 0.0f;
    for (const Candidate& c : candidates_) mass += c.weight;
    if (p.min_p > 0.0f || floor == 0.0f) break;
    if (p.top_k > 0 && int(candidates_.size()) >= p.top_k) break;
    if (p.top_k == 0 && mass >= p.top_p * total) {
      mass = total;
      break;
    }
  }
  if (candidates_.empty()) return 0;  // only NaNs: a broken model must still end in a token
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
  });
  if (p.top_k > 0 && int(candidates_.size()) > p.top_k) {
    candidates_.resize(p.top_k);
    mass = 0.0f;
    for (const Candidate& c : candidates_) mass += c.weight;
  }
  float kept = 0.0f;
  size_t count = 0;
  while (count < candidates_.size() && (count == 0 || kept < p.top_p * mass)) kept += candidates_[count++].weight;
  float left = float(u * kept);
  for (size_t i = 0; i < count; i++) {
    left -= candidates_[i].weight;
    if (left < 0.0f) return candidates_[i].token;
  }
  return candidates_[count - 1].token;
}

void Sampler::gather(float floor) {
  candidates_.clear();
  for (int i = 0; i < vocabulary_; i++)
    if (weights_[i] >= floor && weights_[i] > 0.0f) candidates_.push_back({weights_[i], i});
}

void Sampler::report(const float* logits, int top_logprobs, Choice* choice) {
  const float top = logits[kernels_->argmax(logits, vocabulary_)];
  const float total = kernels_->exp_sum(logits, vocabulary_, top, 1.0f, weights_.data(), block_sums_.data());
  const float log_total = top + float(std::log(double(total)));
  choice->logprob = logits[choice->token] - log_total;
  choice->tops = std::min({top_logprobs, kMaxTopLogprobs, vocabulary_});
  const auto better = [](const Candidate& a, const Candidate& b) { return a.weight != b.weight ? a.weight > b.weight : a.token < b.token; };
  candidates_.clear();  // a heap whose front is the worst of the best so far
  for (int i = 0; i < vocabulary_ && choice->tops > 0; i++) {
    if (int(candidates_.size()) == choice->tops) {
      if (logits[i] <= candidates_.front().weight) continue;
      std::pop_heap(candidates_.begin(), candidates_.end(), better);
      candidates_.pop_back();
    }
    candidates_.push_back({logits[i], i});
    std::push_heap(candidates_.begin(), candidates_.end(), better);
  }
  std::sort_heap(candidates_.begin(), candidates_.end(), better);
  for (int i = 0; i < choice->tops; i++) choice->top[i] = {candidates_[i].token, candidates_[i].weight - log_total};
}

}  // namespace zl
