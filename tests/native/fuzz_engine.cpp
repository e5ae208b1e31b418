// Throws random calls at the engine's entry points, sensible ones and hostile ones mixed: each must either work or throw.
//
//   fuzz_engine [SECONDS] [SEED]     (built with sanitizers by `make sanitize`)
//
// What the sanitizers see is the test; beside them, a model of the slots checks that only plans within the rules are accepted.
#include <chrono>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <stdexcept>

#include "small_model.hpp"

namespace {

constexpr int kSlots = 4, kSlotTokens = 64, kChunk = 16, kPrefixes = 2, kPrefixTokens = 32;

class Fuzzer {
 public:
  explicit Fuzzer(uint64_t seed) : random_(seed) {}

  void run(double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    do {
      create();
      for (int i = 0; i < 2000 && std::chrono::steady_clock::now() < end; i++) call();
    } while (std::chrono::steady_clock::now() < end);
    std::printf("%ld calls, %ld of them refused, %ld tokens\n", calls_, refused_, tokens_);
  }

 private:
  struct Slot { int prompt = 0, done = 0, produced = 0, wanted = 0; bool masked = false; };  // prompt 0: closed

  bool one_in(int n) { return random_.bits() % unsigned(n) == 0; }
  int below(int n) { return int(random_.bits() % unsigned(n)); }

  // Mostly a number from 0 to n - 1, now and then one of those that break things.
  int any(int n) {
    static constexpr int kHostile[] = {-1, INT_MIN, INT_MAX, INT_MAX - 1, 1 << 16, -(1 << 16), 1 << 30};
    if (one_in(24)) return kHostile[below(7)];
    return one_in(16) ? n + below(3) : below(n);
  }

  float any_float(float usual) {
    using Float = std::numeric_limits<float>;
    static constexpr float kHostile[] = {0.0f, -1.0f, Float::infinity(), -Float::infinity(), Float::quiet_NaN(), Float::max(), Float::denorm_min()};
    return one_in(6) ? kHostile[below(7)] : random_.between(0.0f, usual);
  }

  template <class Call>
  bool accepted(const Call& call) {
    calls_++;
    try {
      call();
      return true;
    } catch (const std::logic_error&) {
      refused_++;
      return false;
    }
  }

  void expect(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "FAIL %s\n", what);
    std::abort();
  }

  void create() {
    const std::vector<const zl::KernelSet*> sets = all_sets();
    model_.exact = one_in(2);
    engine_.reset();
    hostile_sizes(sets[0]);
    const zl::SeenKind seen = one_in(2) ? zl::SeenKind::kExact : zl::SeenKind::kBloom;
    engine_ = std::make_unique<zl::Engine>(model_.shape, zl::Limits{kSlots, kSlotTokens, kChunk, 1 + below(2), kPrefixes, kPrefixTokens, model_.exact, seen},
                                           sets[below(int(sets.size()))]);
    const int32_t token = 1;
    expect(!accepted([&] { engine_->logits(&token, 1, nullptr); }), "an engine without weights computes nothing");
    model_.load(engine_.get());
    slots_.assign(kSlots, {});
  }

  void hostile_sizes(const zl::KernelSet* set) {
    zl::Shape shape = model_.shape;
    int* const sizes[] = {&shape.layers, &shape.hidden, &shape.heads, &shape.kv_heads, &shape.head_dim, &shape.intermediate, &shape.vocabulary};
    static constexpr int kHostile[] = {0, -1, INT_MIN, INT_MAX, INT_MAX - 63};
    *sizes[below(7)] = kHostile[below(5)];
    expect(!accepted([&] { zl::Engine(shape, {1, 16, 16, 1, 0, 0, false, zl::SeenKind::kExact}, set); }), "a hostile shape is refused");
  }

  void call() {
    switch (below(20)) {
      case 0: case 1: case 2: return open();
      case 3: return close(any(kSlots));
      case 4: return logits();
      case 5: return load();
      case 6: return static_cast<void>(accepted([&] { engine_->prefill_left(any(kSlots)); }));
      case 7: return pin();
      case 8: return follow();
      default: return step();
    }
  }

  void open() {
    const int slot = any(kSlots), tokens = 1 + below(kSlotTokens), max_tokens = any(kSlotTokens), count = one_in(16) ? -below(4) : tokens;
    std::vector<int32_t> prompt(tokens);
    for (int32_t& token : prompt) token = below(7);  // few kinds: prefixes and penalties have something to do
    if (one_in(8)) prompt[below(tokens)] = any(SmallModel::kVocabulary);
    zl::SamplingParameters p{any_float(1.5f), any_float(1.0f), any(50), one_in(4) ? any_float(0.5f) : 0.0f, one_in(2) ? 1.0f : any_float(2.0f),
                             one_in(2) ? 0.0f : any_float(1.0f), one_in(2) ? 0.0f : any_float(1.0f), random_.bits(), one_in(2) ? -1 : any(22), one_in(3) ? any(5) : 0, {}};
    if (one_in(3)) p.bias.push_back({any(SmallModel::kVocabulary), any_float(100.0f)});
    if (one_in(3)) p.temperature = 0.0f;
    const int scores = one_in(4) ? any(22) : -1, prefix = any(kPrefixes), shared = one_in(2) ? 0 : one_in(2) ? 16 : any(kPrefixTokens);
    const bool masked = one_in(3);
    if (accepted([&] { engine_->open(slot, prompt.data(), count, max_tokens, p, {any(9), 3}, scores, prefix, shared, masked); })) {
      expect(slots_.at(slot).prompt == 0 && tokens + max_tokens <= kSlotTokens, "only a free slot opens, with what fits it");
      slots_[slot] = {tokens, shared, 0, max_tokens, masked};
    }
  }

  void close(int slot) {
    if (accepted([&] { engine_->close(slot); })) slots_.at(slot) = {};
  }

  void step() {
    std::vector<int32_t> decode;
    for (int s = 0; s < kSlots; s++)
      if (slots_[s].produced > 0 && slots_[s].produced < slots_[s].wanted && !one_in(6)) decode.push_back(s);
    if (one_in(12)) decode.push_back(any(kSlots));
    if (one_in(40)) decode.assign(kSlots + 1 + below(3), any(kSlots));
    int prefill = -1, count = 0;
    for (int s = 0; s < kSlots; s++)
      if (slots_[s].done < slots_[s].prompt) prefill = s;
    if (prefill >= 0) count = std::min(slots_[prefill].prompt - slots_[prefill].done, 1 + below(kChunk));
    if (one_in(16)) prefill = any(kSlots);
    if (one_in(16)) count = any(kChunk);
    for (int i = 0; i < kSlots * engine_->mask_words(); i++) engine_->masks()[i] = one_in(2) ? 1u << below(6) : uint32_t(random_.bits());
    const zl::Keeping keep = !one_in(3) ? zl::Keeping{} : zl::Keeping{any(kPrefixes), one_in(4) ? any(kPrefixTokens) : 16 * (1 + below(2))};
    const std::vector<zl::Sampled>* sampled = nullptr;
    if (!accepted([&] { sampled = &engine_->step(decode.data(), int(decode.size()), prefill, count, keep); })) return;
    expect(int(engine_->scored().size()) <= std::max(0, count), "only tokens of the chunk are scored");
    for (const int32_t s : decode) expect(slots_.at(s).produced > 0 && slots_[s].produced < slots_[s].wanted, "only a running slot decodes");
    if (prefill >= 0 && count > 0) slots_.at(prefill).done += count;
    expect(keep.tokens == 0 || keep.tokens <= slots_.at(prefill).done, "only what has been read is kept");
    for (const zl::Sampled& one : *sampled) {
      expect(one.finish == zl::Finish::kUnsound || !one.has_logprob || std::isfinite(one.choice.logprob), "a log probability is a number");
      expect(one.choice.token >= 0 && one.choice.token < SmallModel::kVocabulary, "a token lies in the vocabulary");
      const uint32_t word = engine_->masks()[one.slot * engine_->mask_words() + one.choice.token / 32];
      expect(!slots_.at(one.slot).masked || (word >> (one.choice.token % 32) & 1), "a masked slot has only what its mask allows");
      expect(++slots_.at(one.slot).produced <= slots_[one.slot].wanted, "no slot has more tokens than it asked for");
      tokens_++;
    }
    for (int s = 0; s < kSlots; s++)
      if (slots_[s].prompt && slots_[s].produced == slots_[s].wanted) close(s);
  }

  void logits() {
    std::vector<int32_t> tokens(1 + below(24));
    for (int32_t& token : tokens) token = one_in(60) ? any(SmallModel::kVocabulary) : below(SmallModel::kVocabulary);
    std::vector<float> out(tokens.size() * SmallModel::kVocabulary);
    if (accepted([&] { engine_->logits(tokens.data(), int(tokens.size()), out.data()); })) expect(slots_.back().prompt == 0, "logits need the last slot");
  }

  void load() {
    std::vector<float> values(SmallModel::kHidden, 1.0f);
    accepted([&] { engine_->load_norms(any(SmallModel::kLayers), values.data(), values.data()); });
    int fine = 0;
    if (accepted([&] { fine = engine_->find_fine(); })) expect(fine == 0, "nothing is left to refine");
    expect(!accepted([&] { engine_->pack_fine(); }), "nothing is left to pack");
    const zl::Tensor wrong{zl::TensorType(any(40)), reinterpret_cast<const uint8_t*>(values.data()), any(SmallModel::kHidden - 1), any(SmallModel::kHidden)};
    expect(!accepted([&] { engine_->load_down(any(SmallModel::kLayers), wrong); }), "a tensor of another shape is refused");
  }

  void pin() {
    std::vector<int> cores(below(4));
    for (int& core : cores) core = any(2);
    engine_->pin(cores);
  }

  // Stages of steps in changing numbers of threads.
  void follow() {
    std::vector<int> counts(below(5));
    for (int& count : counts) count = any(3);
    engine_->shift().follow(counts);
  }

  Random random_;
  SmallModel model_;
  std::unique_ptr<zl::Engine> engine_;
  std::vector<Slot> slots_;
  long calls_ = 0, refused_ = 0, tokens_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 10.0;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  Fuzzer(seed).run(seconds);
  return EXIT_SUCCESS;
}
