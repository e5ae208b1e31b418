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
constexpr float kColdest = 1e-30f;  // a temperature whose inverse is a number; greedy, if two logits are not the same
constexpr float kNever = -1e30f;  // a logit with the weight 0, whatever penalties make of it
constexpr float kLeastPenalty = 1e-6f;  // a logit divided by it is a number

// Logits that are numbers may still be too far apart: a reply is JSON, which has nothing below all numbers.
float number(float x) { return std::max(x, kNever); }

bool allows(const uint32_t* mask, int token) { return mask[token / 32] >> (token % 32) & 1; }

int first_allowed(const uint32_t* mask, int vocabulary) {
  for (int word = 0; word < (vocabulary + 31) / 32; word++)
    if (mask[word]) return std::min(word * 32 + __builtin_ctz(mask[word]), vocabulary - 1);
  return 0;
}

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
    : kernels_(kernels),
      vocabulary_(vocabulary),
      weights_(round_up(vocabulary, 16)),
      block_sums_(vocabulary / kBlock + 1),
      masked_(round_up(vocabulary, 32)) {
  candidates_.resize(vocabulary);  // touched, not only reserved
  candidates_.clear();
  saved_.resize(most_seen + kMaxBias + kMaxStops);
  saved_.clear();
}

Choice Sampler::choose(float* logits, const SamplingParameters& p, const TokenHistory& history, const std::vector<int32_t>& stops,
                       int position, const uint32_t* mask) {
  Choice choice;
  float* from = mask ? masked(logits, mask) : logits;
  const bool changed = p.changes_logits();
  if (changed) {
    for (const LogitBias& b : p.bias) set(from, b.token, from[b.token] + b.bias);
    if (position < p.min_tokens)
      for (const int32_t stop : stops) set(from, stop, kNever);
    if (p.has_penalty()) penalise(from, p, history);
  }
  const int token = p.temperature == 0.0f ? kernels_->argmax(from, vocabulary_) : draw(from, p, position);
  if (changed) restore(from);
  choice.sound = token >= 0;
  choice.token = std::max(token, 0);
  // Nothing is left where all that the mask allows is barred by min_tokens: even then nothing else is chosen.
  if (mask && !allows(mask, choice.token)) choice.token = first_allowed(mask, vocabulary_);
  if (p.top_logprobs >= 0 && choice.sound) report(logits, p.top_logprobs, &choice);
  return choice;
}

float* Sampler::masked(const float* logits, const uint32_t* mask) {
  for (int begin = 0; begin < vocabulary_; begin += 32) {
    const uint32_t word = mask[begin / 32];
    const int count = std::min(32, vocabulary_ - begin);
    if (word == 0) {
      std::fill_n(masked_.data() + begin, count, kNever);
    } else {
      for (int i = 0; i < count; i++) masked_[begin + i] = word >> i & 1 ? logits[begin + i] : kNever;
    }
  }
  return masked_.data();
}

int Sampler::penalise(float* logits, const SamplingParameters& p, const TokenHistory& history) {
  const size_t before = saved_.size();
  const float penalty = std::max(p.repetition_penalty, kLeastPenalty);
  history.each_seen([&](int32_t token) {
    float x = logits[token];
    x = x > 0.0f ? x / penalty : x * penalty;
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

// -1: the logits are not all finite.
int Sampler::draw(const float* logits, const SamplingParameters& p, int position) {
  const int best = kernels_->argmax(logits, vocabulary_);
  if (best < 0) return -1;
  const float factor = 1.0f / std::max(p.temperature, kColdest);
  const float total = kernels_->exp_sum(logits, vocabulary_, logits[best], factor, weights_.data(), block_sums_.data());
  const double u = uniform(p.seed, position);
  if (p.top_p >= 1.0f && p.top_k == 0 && p.min_p == 0.0f) return draw_plain(total, u);
  const int drawn = draw_truncated(p, total, u);
  return drawn < 0 ? best : drawn;
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
  while (last > 0 && weights_[last] <= 0.0f) last--;
  return last;  // rounding may leave a little mass: it goes to the last token that has any
}

// -1 where nothing is left to draw from.
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
  if (candidates_.empty()) return -1;
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
  const int best = kernels_->argmax(logits, vocabulary_);
  choice->sound = best >= 0;
  if (best < 0) return;
  const float top = logits[best];
  const float total = kernels_->exp_sum(logits, vocabulary_, top, 1.0f, weights_.data(), block_sums_.data());
  const float log_total = top + float(std::log(double(total)));
  choice->logprob = number(logits[choice->token] - log_total);
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
  for (int i = 0; i < choice->tops; i++) choice->top[i] = {candidates_[i].token, number(candidates_[i].weight - log_total)};
}

}  // namespace zl
