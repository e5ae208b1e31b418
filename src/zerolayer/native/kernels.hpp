// What a kernel set is: the functions that one step needs, compiled once per instruction set and chosen when the engine starts.
//
// Numbers. A weight w is int8 per output channel and stored as the byte w + 128. An activation is q, 14 bits, |q| <= 8128, kept as
// q = 128 * hi + lo (bytes) or as int16, as the set likes. Sums of w * q are exact in int32 over kBlockK values, so they do not depend
// on the instruction set, on the rows beside them or on the number of threads; the float operations around them have one order
// (simd.hpp). Hence every set gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zl {

constexpr int kPanel = 32;        // outputs of one weight panel: two tiles of 16
constexpr int kAlignK = 64;       // inputs are padded to this many
constexpr int kBlockK = 2048;     // inputs whose products with 127 * 8128 still fit int32
constexpr int kFine = 64;         // inputs of a matrix whose weights may have seven more bits
constexpr float kActivationMax = 8128.0f;  // 127 * 64: hi and lo fit a signed byte
constexpr float kKeyMax = 4064.0f;         // query * key summed over head_dim fits int32
constexpr float kProbabilityMax = 16256.0f;  // 127 * 128: hi and lo fit seven bits

constexpr int round_up(int n, int to) { return (n + to - 1) / to * to; }

// How the weights of a matrix are kept.
// kInt8: weight = scale[output] * (byte - 128). Panel (32 outputs) > 64 inputs > tile (16 outputs) > quad (4 inputs) > output > input.
// kNibbles, kBytes: exactly as in the file, in groups of 32 inputs: weight = d * q + m. Panel > tile > group; a group is its q, quads of
// 16 outputs x 4 inputs (nibbles: quads 2j and 2j + 1 share bytes, the even one low), then 16 halves d and 16 halves m.
enum class Kind { kInt8, kNibbles, kBytes };

constexpr int kGroup = 32;
constexpr size_t group_bytes(Kind kind) { return (kind == Kind::kNibbles ? 256 : 512) + 64; }

// What int8 rounds off hurts where inputs are large, and some few inputs of a language model always are (Dettmers et al., LLM.int8(),
// 2022). A matrix with `fine` has 64 more inputs behind the others, as it were: weights in 128ths of the scale for the rest that rounding
// left at inputs fine[0, 64), and as activation of each the 128th part of that input, which is its byte hi. So nothing but int8 products is
// added, as many as 64 inputs take that are one byte each: the fine ones have no high part.
struct Matrix {
  Kind kind = Kind::kInt8;
  uint8_t* data = nullptr;
  float* scale = nullptr;  // [panels * 32], weight = scale * (byte - 128)
  float* bias = nullptr;   // [panels * 32] or null
  int32_t* fine = nullptr;  // [kFine] or null
  int n = 0, k = 0;
  int k_pad = 0, panels = 0;  // inputs with padding and fine ones
  int k_coarse() const { return fine ? k_pad - kFine : k_pad; }
  size_t panel_bytes() const { return kind == Kind::kInt8 ? size_t(k_pad) * kPanel : 2 * size_t(k / kGroup) * group_bytes(kind); }
};

// Quantised rows. x[r][i] = scale[r] * (128 * hi[r][i] + lo[r][i]); words holds the same number for sets that prefer int16.
struct Activations {
  int8_t* hi = nullptr;      // [rows, stride]
  int8_t* lo = nullptr;
  int16_t* words = nullptr;  // [rows, stride]
  float* scale = nullptr;    // [rows]
  float* group_sum = nullptr;  // [rows, stride / 32]: sum of q over each group, for grouped weights; null: there are none
  int32_t* sum = nullptr;    // [rows, sum_stride]: 128 * sum of q over each block of kBlockK inputs, modulo 2^32
  int stride = 0, sum_stride = 0;
};

// What a thread reads next and fetches meanwhile: at every step of a product (64 inputs of int8 weights, a group of others) some lines of
// the next panel, and some of the pieces of memory that it reads after its panels.
struct Ahead {
  struct Piece { const char* at; int lines; };
  const uint8_t* after = nullptr;          // its panels
  Piece *piece = nullptr, *end = nullptr;  // which are left to be fetched
  int64_t products = 0;                    // panels times inputs of the products in which to do that
  // At every step, as the product in hand sets them.
  const char* panel = nullptr;
  int panel_lines = 0, piece_lines = 0;
};

enum class Epilogue { kStore, kAdd, kSiluMul };

// One layer's keys and values of one slot and kv head.
// keys: [tokens / 16][head_dim / 2][16 tokens][2] int16; values: [tokens / 4][head_dim][4 tokens] int8; scales: [tokens].
struct KvHead {
  int16_t* keys;
  int8_t* values;
  float* key_scale;
  float* value_scale;
};

struct AttentionScratch {
  int16_t* query;    // [group, head_dim]
  int32_t* scores;   // [group, tokens + 16]
  float* weights;    // [group, tokens + 64]
  uint8_t* prob_hi;  // [group, tokens + 64]
  uint8_t* prob_lo;
  int32_t* sums;     // [group, 2, head_dim]: high part, low part
  int score_stride, prob_stride;
};

struct KernelSet {
  const char* name;
  // x[m.k] (times norm weight and 1/rms if norm is not null) to row `row` of `a` as `m` reads it: padding is zero, then come fine inputs.
  void (*quantise)(const float* x, const Matrix& m, const float* norm, float eps, const Activations& a, int row);
  // rows x panels [begin, end) of m. kStore: out = value (+ bias); kAdd: out += value; kSiluMul: out[panel * 16 + i] = silu(g) * u.
  void (*gemm)(const Matrix& m, const Activations& a, int rows, int begin, int end, Ahead& ahead, Epilogue epilogue, float* out, size_t stride);
  // RMSNorm of v[n] in place, times gain[n]; n is a multiple of 16.
  void (*norm)(float* v, int n, const float* gain, float eps);
  // Rotates v[head_dim] in place; cos and sin have head_dim / 2 entries (halves layout: i pairs with i + head_dim / 2).
  void (*rope)(float* v, int head_dim, const float* cosine, const float* sine);
  void (*store_kv)(const KvHead& kv, int head_dim, int position, const float* key, const float* value);
  // `group` query heads [group, head_dim] over `length` tokens to out [group, head_dim]. The first `shared` tokens (a multiple of 16) lie
  // in `prefix`, the others in `own`, at their position in both; the result has the same bits wherever the border is.
  void (*attend)(const KvHead& prefix, int shared, const KvHead& own, int head_dim, int group, int length, const float* query, float* out,
                 const AttentionScratch& s);
  int (*argmax)(const float* x, int n);  // the first of the largest; -1: they are not all finite
  // out[i] = exp((x[i] - shift) * factor), sums[b] = sum of block b of 256; returns the sum of all, in block order.
  float (*exp_sum)(const float* x, int n, float shift, float factor, float* out, float* sums);
  // One tile column: 16 float rows [16, k] to bytes in the panel layout at `tile`, and their scales.
  void (*pack_tile)(const float* const* rows, int k, int k_pad, uint8_t* tile, float* scale);
};

const KernelSet* kernels_portable();
#if defined(__x86_64__)
const KernelSet* kernels_avx2();
const KernelSet* kernels_avx512();
const KernelSet* kernels_vnni();
const KernelSet* kernels_amx();
const KernelSet* kernels_amx_emulated();
#endif

}  // namespace zl
