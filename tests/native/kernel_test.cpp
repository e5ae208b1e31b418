// Tests of the kernels without Python: built with a plain compiler, run here and, cross-built, on other processors.
//
//   sh tests/native/build.sh /tmp/kernel_test && /tmp/kernel_test
//
// Prints one line per check and, last, a fingerprint of a small model's logits: it must be the same on every processor and kernel set.
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cpu.hpp"
#include "engine.hpp"
#include "small_model.hpp"

namespace {

int failures = 0;

void check(bool condition, const std::string& what) {
  std::printf("%s %s\n", condition ? "ok  " : "FAIL", what.c_str());
  if (!condition) failures++;
}

// Buffers of `rows` quantised rows, padded to blocks of 16 rows as the engine pads them.
struct Rows {
  Rows(int rows, int k_pad) : stride(k_pad), blocks(stride / zl::kBlockK + 1) {
    const size_t n = size_t(zl::round_up(rows, 16)) * stride;
    hi.resize(n + 64);
    lo.resize(n + 64);
    words.resize(n + 64);
    scale.resize(zl::round_up(rows, 16));
    sum.resize(scale.size() * blocks);
    group_sum.resize(n / zl::kGroup);
    view = {hi.data(), lo.data(), words.data(), scale.data(), group_sum.data(), sum.data(), stride, blocks};
  }
  int stride, blocks;
  std::vector<int8_t> hi, lo;
  std::vector<int16_t> words;
  std::vector<float> scale, group_sum;
  std::vector<int32_t> sum;
  zl::Activations view;
};

struct PackedMatrix {
  PackedMatrix(const zl::KernelSet* set, const std::vector<float>& w, int n, int k, bool fine) {
    if (fine) {
      for (int i = 0; i < zl::kFine; i++) inputs.push_back(i * 7 % k);
      matrix.fine = inputs.data();
    }
    matrix.n = n;
    matrix.k = k;
    matrix.k_pad = zl::round_up(k, zl::kAlignK) + (fine ? zl::kFine : 0);
    matrix.panels = zl::round_up(n, zl::kPanel) / zl::kPanel;
    data.resize(matrix.panel_bytes() * matrix.panels + 16384);
    scale.resize(size_t(matrix.panels) * zl::kPanel);
    matrix.data = data.data();
    matrix.scale = scale.data();
    std::vector<float> zeros(k);
    for (int tile = 0; tile < matrix.panels * 2; tile++) {
      const float* rows[16];
      for (int o = 0; o < 16; o++) rows[o] = tile * 16 + o < n ? w.data() + size_t(tile * 16 + o) * k : zeros.data();
      set->pack_tile(rows, k, matrix.k_pad, matrix.data + size_t(tile / 2) * matrix.panel_bytes() + (tile % 2) * 1024, matrix.scale + tile * 16);
    }
    Random random(3);
    for (int output = 0; output < n; output++)
      for (int i = matrix.k_coarse(); i < matrix.k_pad; i++) data[place(output, i)] = uint8_t(1 + random.bits() % 255);
  }
  int weight(int output, int input) const { return int(data[place(output, input)]) - 128; }
  size_t place(int output, int input) const {
    return size_t(output / 32) * matrix.panel_bytes() + size_t(input / 64) * 2048 + (output % 32) / 16 * 1024 +
           size_t(input % 64 / 4) * 64 + (output % 16) * 4 + input % 4;
  }
  zl::Matrix matrix;
  std::vector<uint8_t> data;
  std::vector<float> scale;
  std::vector<int32_t> inputs;
};

// The product of quantised rows, summed in 64-bit integers by blocks: what every kernel set must give exactly.
void check_gemm(const zl::KernelSet* set, int rows, int n, int k, bool extreme, bool fine = false) {
  Random random(uint64_t(rows * 1000003 + n * 1009 + k));
  std::vector<float> w = random_floats(&random, size_t(n) * k, 0.3f);
  std::vector<float> x = random_floats(&random, size_t(rows) * zl::round_up(k, 16), 2.0f);
  if (extreme) {
    for (float& v : w) v = 1.0f;
    for (float& v : x) v = -1.0f;
  }
  const int x_stride = zl::round_up(k, 16);
  for (int r = 0; r < rows; r++)
    for (int i = k; i < x_stride; i++) x[size_t(r) * x_stride + i] = 0.0f;
  const PackedMatrix packed(set, w, n, k, fine);
  const zl::Matrix& m = packed.matrix;
  Rows quantised(rows, m.k_pad), words(rows, m.k_pad);
  for (int r = 0; r < rows; r++) {
    set->quantise(x.data() + size_t(r) * x_stride, m, nullptr, 0.0f, quantised.view, r);
    zl::kernels_portable()->quantise(x.data() + size_t(r) * x_stride, m, nullptr, 0.0f, words.view, r);
  }
  const size_t stride = size_t(packed.matrix.panels) * zl::kPanel;
  std::vector<float> out(stride * rows);
  zl::Ahead ahead;
  ahead.after = packed.data.data();
  set->gemm(packed.matrix, quantised.view, rows, 0, packed.matrix.panels, ahead, zl::Epilogue::kStore, out.data(), stride);
  int wrong = 0;
  for (int r = 0; r < rows; r++) {
    const int16_t* q = words.words.data() + size_t(r) * words.stride;
    for (size_t i = 0; i < packed.inputs.size(); i++) wrong += q[m.k_coarse() + i] != (q[packed.inputs[i]] + 64) >> 7;
    for (int o = 0; o < n; o++) {
      float expected = 0.0f;
      for (int begin = 0; begin < m.k_pad; begin += zl::kBlockK) {
        int64_t sum = 0;
        for (int i = begin; i < std::min(begin + zl::kBlockK, m.k_pad); i++) sum += int64_t(packed.weight(o, i)) * q[i];
        expected = begin ? expected + float(int32_t(sum)) : float(int32_t(sum));
        if (sum != int32_t(sum)) wrong++;
      }
      expected = expected * words.scale[r] * packed.scale[o];
      if (memcmp(&expected, &out[r * stride + o], 4) != 0) wrong++;
    }
  }
  check(wrong == 0, std::string(set->name) + " gemm rows=" + std::to_string(rows) + " n=" + std::to_string(n) + " k=" + std::to_string(k) +
                        (extreme ? " at the largest values" : "") + (fine ? " with fine inputs" : ""));
}

void check_exp(const zl::KernelSet* set) {
  std::vector<float> x(4096), out(4096), sums(17);
  for (int i = 0; i < 4096; i++) x[i] = -90.0f * float(i) / 4095.0f;
  set->exp_sum(x.data(), 4096, 0.0f, 1.0f, out.data(), sums.data());
  double worst = 0.0;
  bool flushed = true;
  for (int i = 0; i < 4096; i++) {
    if (x[i] < -87.0f) flushed = flushed && out[i] == 0.0f;
    else worst = std::max(worst, std::fabs(double(out[i]) / std::exp(double(x[i])) - 1.0));
  }
  check(worst < 2e-7 && flushed, std::string(set->name) + " exp: relative error below 2e-7, zero below -87");
}

void check_argmax(const zl::KernelSet* set) {
  std::vector<float> x(1003, -1.0f);
  x[700] = x[37] = 2.5f;
  check(set->argmax(x.data(), 1003) == 37, std::string(set->name) + " argmax: the first of the largest");
  x[1002] = 3.0f;
  check(set->argmax(x.data(), 1003) == 1002, std::string(set->name) + " argmax: the tail counts");
  std::vector<float> low(1003, -3e38f);
  low[999] = -2e38f;
  check(set->argmax(low.data(), 1003) == 999, std::string(set->name) + " argmax: numbers may be as low as they can");
  bool seen = true;
  for (const float harm : {NAN, -NAN, INFINITY, -INFINITY})
    for (const int at : {0, 37, 38, 511, 512, 991, 992, 1002}) {
      std::vector<float> harmed = x;
      harmed[at] = harm;
      seen = seen && set->argmax(harmed.data(), 1003) == -1;
    }
  check(seen, std::string(set->name) + " argmax: what is no finite number is seen wherever it is");
}

void check_norm(const zl::KernelSet* set) {
  Random random(5);
  const std::vector<float> x = random_floats(&random, 128, 2.0f), gain = random_floats(&random, 128, 1.0f);
  std::vector<float> out = x, expected = x;
  set->norm(out.data(), 128, gain.data(), 1e-6f);
  zl::kernels_portable()->norm(expected.data(), 128, gain.data(), 1e-6f);
  double squares = 0.0, worst = 0.0;
  for (const float value : x) squares += double(value) * value;
  for (int i = 0; i < 128; i++) worst = std::max(worst, std::fabs(out[i] - x[i] * gain[i] / std::sqrt(squares / 128 + 1e-6)));
  check(worst < 1e-6 && out == expected, std::string(set->name) + " norm: the formula's numbers, the portable set's bits");
}

uint64_t fingerprint(const zl::KernelSet* set, int threads, int chunk_tokens, bool exact) {
  SmallModel model;
  model.exact = exact;
  zl::Engine engine(model.shape, {64, 128, chunk_tokens, threads, 0, 0, exact, zl::SeenKind::kExact}, set);
  model.load(&engine);
  std::vector<int32_t> tokens(70);
  Random random(11);
  for (int32_t& token : tokens) token = int32_t(random.bits() % SmallModel::kVocabulary);
  std::vector<float> logits(tokens.size() * SmallModel::kVocabulary);
  engine.logits(tokens.data(), int(tokens.size()), logits.data());
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const float x : logits) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    hash = (hash ^ bits) * 1099511628211u;
  }
  return hash;
}

}  // namespace

int main() {
  for (const zl::KernelSet* set : all_sets()) {
    for (const int rows : {1, 2, 3, 5, 6, 7, 13, 16, 17, 33}) check_gemm(set, rows, 70, 100, false);
    check_gemm(set, 3, 40, 4160, false);
    check_gemm(set, 7, 32, 2048, true);
    for (const int rows : {1, 6, 16, 33}) check_gemm(set, rows, 70, 100, false, true);
    check_gemm(set, 7, 32, 2048, true, true);
    check_exp(set);
    check_argmax(set);
    check_norm(set);
  }
  for (const bool exact : {false, true}) {
    const std::string kind = exact ? " exact model" : " int8 model";
    const uint64_t expected = fingerprint(zl::kernels_portable(), 1, 64, exact);
    for (const zl::KernelSet* set : all_sets())
      for (const int threads : {1, 2})
        for (const int chunk : {64, 16, 5})
          check(fingerprint(set, threads, chunk, exact) == expected, set->name + kind + ": same bits with " + std::to_string(threads) +
                                                                         " threads and chunks of " + std::to_string(chunk));
    std::printf("fingerprint of the%s %016" PRIx64 "\n", kind.c_str(), expected);
  }
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
