// One model in slots: weights, KV cache, and the step that computes rows of several slots at once.
#pragma once

#include <atomic>
#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "arena.hpp"
#include "dequantise.hpp"
#include "kernels.hpp"
#include "offers.hpp"
#include "pool.hpp"
#include "sampler.hpp"
#include "shift.hpp"

namespace zl {

struct Shape {
  int layers, hidden, heads, kv_heads, head_dim, intermediate, vocabulary;
  float rms_eps, rope_base;
  int group() const { return heads / kv_heads; }
  int query_width() const { return heads * head_dim; }
  int kv_width() const { return kv_heads * head_dim; }
};

// `exact`: weights stay in the groups of the file instead of becoming int8 per output.
// `prefixes` shared prefixes of up to `prefix_tokens` tokens each (a multiple of 16; both may be 0).
// `seen`: how a slot knows which tokens the repetition penalty is for.
struct Limits { int slots, slot_tokens, chunk_tokens, threads, prefixes, prefix_tokens; bool exact; SeenKind seen; };

// A GGUF tensor [rows, columns] in memory that the caller keeps alive during the call.
struct Tensor {
  TensorType type;
  const uint8_t* data;
  int rows, columns;
};

// The first `tokens` (a multiple of 16; 0: none) of a slot's context become shared prefix `prefix`, which no open slot may use.
struct Keeping { int prefix = 0, tokens = 0; };

// The model's file is damaged: what it holds are no weights.
struct DamagedWeights : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Finish { kNone = 0, kStop = 1, kLength = 2, kUnsound = 3 };  // kUnsound: its logits, or those of its prompt's scores, are no numbers

struct Sampled {
  int slot;
  Finish finish;
  bool has_logprob;
  Choice choice;
};

// Not thread-safe: one thread calls. Errors of the caller throw std::invalid_argument before anything changed.
class Engine {
 public:
  Engine(const Shape& shape, const Limits& limits, const KernelSet* kernels);

  // What loads weights throws DamagedWeights where one is NaN, infinite, or so large that its square is.
  // `interleaved`: rows of each head are in GGUF's interleaved rotary order and are brought to the halves order.
  void load_qkv(int layer, const Tensor& q, const Tensor& k, const Tensor& v, bool interleaved);
  void load_qkv_bias(int layer, const float* q, const float* k, const float* v);
  void load_head_norms(int layer, const float* query, const float* key);  // [head_dim] each: RMS norm of every head before rope (Qwen3)
  void load_output(int layer, const Tensor& o);
  void load_gate_up(int layer, const Tensor& gate, const Tensor& up);
  void load_down(int layer, const Tensor& down);
  void load_norms(int layer, const float* attention, const float* mlp);
  void load_embedding(const Tensor& embedding, bool is_head = false);  // `is_head`: load_head gets it too, and looks at its numbers
  void load_head(const Tensor& head, const float* norm);
  void load_rope_factors(const float* factors);  // [head_dim / 2]: divides the frequencies (Llama 3.1's scaling)

  // After everything is loaded: which inputs of int8 matrices are fine (kernels.hpp), those that are largest in a short run on fixed tokens.
  // Returns of how many matrices; for each of them `pack_fine` is to be called.
  int find_fine();
  // The fine weights of the next matrix. Reads its tensors, of load_qkv, load_down or load_head, once more: they must still be in memory.
  void pack_fine();

  // The first `shared` tokens of the prompt (a multiple of 16, fewer than all) are those of shared prefix `prefix`; 0: none.
  // `prompt_logprobs`: alternatives to report for each token of the prompt (scored()), -1: none; needs `shared` 0.
  // `masked`: every token is chosen among those that the slot's row of masks() allows when a step runs.
  void open(int slot, const int32_t* prompt, int tokens, int max_tokens, const SamplingParameters& sampling, std::vector<int32_t> stops,
            int prompt_logprobs, int prefix, int shared, bool masked);
  void close(int slot);
  int prefill_left(int slot) const;

  // One row of mask_words() for each slot, one bit a token, the lowest of each word first.
  uint32_t* masks() { return masks_; }
  int mask_words() const { return (shape_.vocabulary + 31) / 32; }

  // Room for a plan's decode slots, [slots], so that a caller needs no memory of its own.
  int32_t* plan() { return plan_.data(); }

  // One decode row for each slot of `decode`, then `prefill_tokens` rows of `prefill_slot` (-1: none). What is to be kept of that slot
  // is copied while it is being read. The result stays valid until the next call.
  const std::vector<Sampled>& step(const int32_t* decode, int decode_count, int prefill_slot, int prefill_tokens, Keeping keep = {});

  // When the last step had all its tokens, of the monotonic clock; 0: there was none.
  int64_t ended_ns() const { return ended_ns_; }

  // Wakes whoever waits for the eventfd `bell`, and gives way to him: now, and in the step until it is read.
  void ring(int bell);

  // How likely the prompt tokens were that follow on those of the last step's chunk, in their order, if its slot asked for that.
  const std::vector<Choice>& scored() const { return scored_; }

  // Takes part number `part` of `parts` of what the constructor asked for: every page of it is written. Before the first step.
  void touch(int part, int parts);

  // Keeps each worker (all threads but the one that calls step()) on a core of its own. 0, or the system's error number.
  int pin(const std::vector<int>& cores) { return pool_.pin(cores); }

  // How many threads a step has now, and on what grounds (shift.hpp).
  Shift& shift() { return shift_; }

  // Teacher-forced logits of every token through the last slot, which must be closed: out[tokens, vocabulary].
  void logits(const int32_t* tokens, int count, float* out);

  // Floors to compare a step with, in ns on the engine's own threads: reading once what a decode step of `slots` slots with `tokens` of
  // context reads, `turns` of a loop that touches no memory, and `turns` of the products of twelve rows with a panel in the cache.
  int64_t read_once(int slots, int tokens);
  int64_t spin(int64_t turns);
  int64_t products(int64_t turns);
  size_t weight_bytes() const;  // that a decode step reads

  const Shape& shape() const { return shape_; }
  const Limits& limits() const { return limits_; }
  const KernelSet* kernels() const { return kernels_; }
  const Arena& arena() const { return arena_; }

 private:
  struct Layer {
    Matrix qkv, output, gate_up, down;
    float *attention_norm, *mlp_norm;
    float *query_norm, *key_norm;  // null: heads are not normed
    KvHead slots, prefixes;  // of slot or prefix 0, head 0
  };
  struct Slot {
    Slot(int vocabulary, int slot_tokens, SeenKind seen) : prompt(slot_tokens), history(vocabulary, slot_tokens + 1, seen) {
      prompt.clear();  // touched, not only reserved
    }
    bool open = false, masked = false;
    bool unsound = false;  // a score of its prompt is no number
    std::vector<int32_t> prompt, stops;
    int prefix = 0, shared = 0;  // tokens [0, shared) lie in that prefix
    int position = 0;            // tokens in the KV cache
    int last = 0;                // the token that the next decode row feeds
    int produced = 0, max_tokens = 0;
    int row = -1;  // where the last step's plan named it
    int prompt_logprobs = -1;
    SamplingParameters sampling;
    TokenHistory history;
  };
  struct Row { int32_t token, slot, position; };
  struct Thread {  // one thread's scratch
    AttentionScratch attention;
    Sampler sampler;
    Ahead ahead;
    std::vector<Ahead::Piece> pieces;  // of `ahead`
    Offers offers;
  };
  struct Span { int begin, end; };

  using RowOf = std::function<std::pair<const Tensor*, int>(int output)>;  // {tensor, row} of an output, {nullptr, 0} for padding
  struct Refinable { Matrix* matrix; RowOf row_of; std::vector<float> energy; };  // energy: of each input, in the run of find_fine()

  void require_weights();
  void require_keepable(Keeping keep, int read) const;
  Matrix make_matrix(int n, int k, TensorType type, bool fine);
  void pack(Matrix* m, const RowOf& row_of);
  void pack_groups(Matrix* m, const RowOf& row_of);
  bool is_finite(const Tensor& tensor);
  static void read_rows(const Matrix& m, const RowOf& row_of, int tile, float* out);
  void pack_fine(const Refinable& refinable, int thread, float* floats);
  void listen(const Matrix& m, const float* x, size_t stride, const float* norm, int thread);
  static Span share(int items, int thread, int threads);
  static KvHead offset(const KvHead& base, size_t tokens, int head_dim);
  KvHead take_kv(int contexts, int tokens);
  KvHead slot_kv(const Layer& layer, int slot, int head) const;
  KvHead prefix_kv(const Layer& layer, int prefix, int head) const;
  void copy_kv(const KvHead& from, const KvHead& to, int begin, int end) const;
  void keep_prefix(const Layer& layer, int thread);
  void give_way(int thread);
  void run_rows();
  void run_stage(int thread);
  void head(int thread);
  bool ends_early() const;
  void narrow(int thread);
  void project(const Layer& layer, int thread);
  void attention(const Layer& layer, int thread);
  void norm_heads(const Layer& layer, float* queries, float* key);
  void look_ahead(const Layer& layer, std::initializer_list<const Matrix*> matrices, int thread);
  void feed_forward(const Layer& layer, const Matrix& next, int thread);
  void quantise_rows(const float* x, size_t stride, const Matrix& m, const float* norm, int thread);
  void multiply(const Matrix& m, const Matrix& next, int rows, Epilogue epilogue, float* out, size_t stride, int thread);
  void sample(size_t begin, size_t end, int thread);
  void commit(Sampled& sampled);
  Slot& open_slot(int slot);

  const Shape shape_;
  const Limits limits_;
  const KernelSet* const kernels_;
  Arena arena_;
  Pool pool_;
  Shift shift_{&pool_};
  size_t stage_ = 0;  // of the running step: its layer, then the head
  std::vector<Layer> layers_;
  std::vector<Slot> slots_;
  std::vector<Thread> threads_;
  Matrix head_;
  float* head_norm_ = nullptr;
  TensorType embedding_type_ = TensorType::kF32;
  uint8_t* embedding_ = nullptr;
  size_t embedding_row_ = 0;
  float *cosine_ = nullptr, *sine_ = nullptr;  // [slot_tokens, head_dim / 2]
  int padded_tokens_ = 0;

  // Rows of the running step and their activations.
  std::vector<int32_t> plan_;
  std::vector<Row> rows_;
  size_t decoding_ = 0;  // of them, the first ones
  std::vector<int> logit_rows_;  // ascending indices into rows_: of slots that decode, of a prompt that is scored, of a prompt that is read
  Keeping keep_;  // of the slot whose prompt is read
  int keep_slot_ = 0;
  std::atomic<int> bell_{-1};  // that was rung and is not known to be read
  int64_t rung_ns_ = 0, ended_ns_ = 0;
  bool chunked_ = false;  // several rows are of one slot
  bool complete_ = false;  // all weights are loaded
  bool listening_ = false;  // to what matrices multiply, in find_fine()
  std::vector<Refinable> refinable_;
  bool sampling_ = true;
  std::vector<Sampled> sampled_;
  std::vector<Choice> scored_;
  Activations activations_;
  size_t width_ = 0, qkv_stride_ = 0, attended_stride_ = 0, hidden_stride_ = 0, logit_stride_ = 0;
  float *x_ = nullptr, *qkv_ = nullptr, *attended_ = nullptr, *hidden_ = nullptr, *logits_ = nullptr;
  uint32_t* masks_ = nullptr;
};

}  // namespace zl
