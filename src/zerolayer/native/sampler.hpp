// Chooses a token from logits: penalties, temperature, min-p, top-k, top-p, one uniform number, in this order.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.hpp"

namespace zl {

struct SamplingParameters {
  float temperature = 1.0f;         // 0: greedy
  float top_p = 1.0f;               // 1: off
  int top_k = 0;                    // 0: off
  float min_p = 0.0f;               // 0: off
  float repetition_penalty = 1.0f;  // 1: off; over prompt and output
  float presence_penalty = 0.0f;    // over output
  float frequency_penalty = 0.0f;
  uint64_t seed = 0;
  int top_logprobs = -1;  // -1: no logprobs

  bool has_penalty() const { return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f; }
};

// Which tokens one slot has seen: each once, with how often the output has it. Memory is taken at construction only.
class TokenHistory {
 public:
  TokenHistory(int vocabulary, int capacity);
  void see_prompt(int token);
  void see_output(int token);
  void clear();
  const std::vector<int32_t>& distinct() const { return distinct_; }
  int output_count(int token) const { return count_[token] & 0x7fff; }

 private:
  static constexpr uint16_t kSeen = 0x8000;
  std::vector<int32_t> distinct_;
  std::vector<uint16_t> count_;  // by token: kSeen | occurrences in the output
};

struct TokenLogprob { int32_t token; float logprob; };

constexpr int kMaxTopLogprobs = 20;

struct Choice {
  int32_t token = 0;
  float logprob = 0.0f;  // natural, of the raw logits; valid if top_logprobs >= 0
  int tops = 0;
  TokenLogprob top[kMaxTopLogprobs];
};

// Scratch of one thread; memory is taken at construction only.
class Sampler {
 public:
  Sampler(const KernelSet* kernels, int vocabulary, int history_capacity);
  // `position` numbers the token within its request: the same (seed, position) draws the same uniform number, whatever runs beside.
  // logits[vocabulary] is used as scratch and restored where penalties changed it.
  Choice choose(float* logits, const SamplingParameters& p, const TokenHistory& history, int position);

 private:
  struct Candidate { float weight; int32_t token; };
  void penalise(float* logits, const SamplingParameters& p, const TokenHistory& history);
  int draw(const float* logits, const SamplingParameters& p, int position);
  int draw_plain(float total, double uniform) const;
  int draw_truncated(const SamplingParameters& p, float total, double uniform);
  void gather(float at_least);
  void report(const float* logits, int top_logprobs, Choice* choice);

  const KernelSet* kernels_;
  const int vocabulary_;
  std::vector<float> weights_, block_sums_, saved_;
  std::vector<Candidate> candidates_;
};

// Uniform in [0, 1) from (seed, position): SplitMix64 (Steele, Lea, Flood, 2014) used as a counter-based generator.
double uniform(uint64_t seed, uint64_t position);

}  // namespace zl
