// Chooses a token from logits: mask, bias, penalties, temperature, min-p, top-k, top-p, one uniform number, in this order.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.hpp"

namespace zl {

struct LogitBias { int32_t token; float bias; };

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
  int min_tokens = 0;     // no stop token before that many tokens
  std::vector<LogitBias> bias;  // at most kMaxBias, each token once

  bool changes_logits() const { return has_penalty() || min_tokens > 0 || !bias.empty(); }
  bool has_penalty() const { return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f; }
};

enum class SeenKind { kExact, kBloom };

// Which tokens one slot has seen, and how often its output has each. Memory is taken at construction only.
//
// kExact: one bit a token. kBloom: 4 KB whatever the vocabulary, four bits a token (Bloom, "Space/time trade-offs in hash coding with
// allowable errors", CACM 1970, with the two hashes of Kirsch and Mitzenmacher, "Less hashing, same performance", 2006): it takes some
// tokens for seen that are not. How often the output has a token is exact with both.
class TokenHistory {
 public:
  TokenHistory(int vocabulary, int output, SeenKind kind);  // `output`: most tokens of an output
  void see_prompt(int token);
  void see_output(int token);
  void clear();
  int output_count(int token) const { return count_[token]; }

  // visit(token) for every token that counts as seen, in the order of their ids.
  template <class Visit>
  void each_seen(const Visit& visit) const {
    if (kind_ == SeenKind::kBloom) {
      for (int token = 0; token < vocabulary_; token++)
        if (bloom_has(token)) visit(token);
      return;
    }
    for (int word = 0; word < int(bits_.size()); word++)
      for (uint64_t left = bits_[word]; left; left &= left - 1) visit(word * 64 + __builtin_ctzll(left));
  }

 private:
  static constexpr int kBloomBits = 4096 * 8, kHashes = 4;
  static constexpr uint16_t kMost = 0xffff;

  // Two hashes of 15 bits from one multiplication (Fibonacci hashing); the second is odd, so that its multiples differ.
  static uint64_t hash(int token) { return (uint64_t(token) + 1) * 0x9e3779b97f4a7c15u; }
  static int bit_of(uint64_t hash, int i) { return int(((hash >> 49) + uint64_t(i) * ((hash >> 34) | 1)) % kBloomBits); }
  bool bloom_has(int token) const {
    const uint64_t h = hash(token);
    for (int i = 0; i < kHashes; i++) {
      const int bit = bit_of(h, i);
      if (!(bits_[bit / 64] >> (bit % 64) & 1)) return false;
    }
    return true;
  }

  const int vocabulary_;
  const SeenKind kind_;
  std::vector<uint64_t> bits_;
  std::vector<uint16_t> count_;  // by token: occurrences in the output
  std::vector<int32_t> output_;  // tokens with a count
};

struct TokenLogprob { int32_t token; float logprob; };

constexpr int kMaxTopLogprobs = 20;
constexpr int kMaxBias = 1024, kMaxStops = 64;

struct Choice {
  int32_t token = 0;
  bool sound = true;      // false: logits are no finite numbers, so the token means nothing and no logprobs are valid
  float logprob = 0.0f;  // natural, of the raw logits; valid if top_logprobs >= 0
  int tops = 0;
  TokenLogprob top[kMaxTopLogprobs];
};

// Scratch of one thread; memory is taken at construction only.
class Sampler {
 public:
  // `most_seen`: how many tokens of one history may count as seen.
  Sampler(const KernelSet* kernels, int vocabulary, int most_seen);
  // `position` numbers the token within its request: the same (seed, position) draws the same uniform number, whatever runs beside.
  // logits[vocabulary] is used as scratch and restored where parameters changed it. `stops` are the tokens that end a generation.
  // `mask`: one bit a token, the lowest of each word first; only tokens with a set bit are chosen (at least one is); null: all may be.
  Choice choose(float* logits, const SamplingParameters& p, const TokenHistory& history, const std::vector<int32_t>& stops, int position,
                const uint32_t* mask = nullptr);

  // How likely `token` was, whatever would have been chosen; fills the reported part of a choice.
  Choice score(const float* logits, int token, int top_logprobs);

  // The penalties alone, and the undoing of every change since; `choose` calls both. Returns how many tokens were changed.
  int penalise(float* logits, const SamplingParameters& p, const TokenHistory& history);
  void restore(float* logits);

 private:
  struct Candidate { float weight; int32_t token; };
  struct Saved { float logit; int32_t token; };
  void set(float* logits, int32_t token, float x);
  int draw(const float* logits, const SamplingParameters& p, int position);
  int draw_plain(float total, double uniform) const;
  int draw_truncated(const SamplingParameters& p, float total, double uniform);
  void gather(float at_least);
  float* masked(const float* logits, const uint32_t* mask);
  void report(const float* logits, int top_logprobs, Choice* choice);

  const KernelSet* kernels_;
  const int vocabulary_;
  std::vector<float> weights_, block_sums_, masked_;
  std::vector<Saved> saved_;
  std::vector<Candidate> candidates_;
};

// Uniform in [0, 1) from (seed, position): SplitMix64 (Steele, Lea, Flood, 2014) used as a counter-based generator.
double uniform(uint64_t seed, uint64_t position);

}  // namespace zl
