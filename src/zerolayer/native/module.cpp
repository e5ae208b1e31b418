// The Python face of the engine: zerolayer.model._native. The GIL is released inside every call that computes.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "cpu.hpp"
#include "engine.hpp"
#include "step_times.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ids = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Logits = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// A GGUF tensor as Python hands it over: type id, raw bytes, rows, columns.
struct TensorArgument {
  int type;
  Bytes data;
  int rows, columns;
};

zl::Tensor checked(const TensorArgument& t) {
  const auto type = static_cast<zl::TensorType>(t.type);
  const size_t bytes = t.columns > 0 ? zl::row_bytes(type, size_t(t.columns)) : 0;
  if (bytes == 0 || t.rows <= 0 || t.data.size() != bytes * size_t(t.rows)) throw std::invalid_argument("tensor bytes do not match its type and shape");
  return {type, t.data.data(), t.rows, t.columns};
}

const float* checked(const Floats& f, int n) {
  if (int(f.size()) != n) throw std::invalid_argument("vector length does not match the model's configuration");
  return f.data();
}

nb::tuple to_python(const zl::Choice& choice) {
  nb::list top;
  for (int i = 0; i < choice.tops; i++) top.append(nb::make_tuple(choice.top[i].token, choice.top[i].logprob));
  return nb::make_tuple(choice.logprob, top);
}

// What a step's tokens become: token(slot, id), or token(slot, id, one of `finishes` by Finish, None or logprob(id, (logprob, top))); one
// whose logits are no numbers: token(slot, id, the finish of a stop, None, unsound).
struct Tokens {
  nb::object token;
  nb::tuple finishes;
  nb::object logprob, unsound;
};

nb::list to_python(const std::vector<zl::Sampled>& sampled, const Tokens& tokens) {
  nb::list out;
  for (const zl::Sampled& s : sampled) {
    if (!s.has_logprob && s.finish == zl::Finish::kNone) {
      out.append(tokens.token(s.slot, s.choice.token));
      continue;
    }
    if (s.finish == zl::Finish::kUnsound) {
      out.append(tokens.token(s.slot, s.choice.token, tokens.finishes[size_t(zl::Finish::kStop)], nb::none(), tokens.unsound));
      continue;
    }
    nb::object logprob = nb::none();
    if (s.has_logprob) logprob = tokens.logprob(s.choice.token, to_python(s.choice));
    out.append(tokens.token(s.slot, s.choice.token, tokens.finishes[size_t(s.finish)], logprob));
  }
  return out;
}

// Of the calling thread, so far.
int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

std::vector<std::string> kernel_sets() {
  std::vector<std::string> names;
  for (const zl::KernelSet* set : zl::supported_kernels()) names.emplace_back(set->name);
  return names;
}

zl::SeenKind seen_kind(bool bloom) { return bloom ? zl::SeenKind::kBloom : zl::SeenKind::kExact; }

// Applies the repetition penalty to `logits` for a history that saw `seen`, after `rounds` timed passes that were undone each.
// Returns nanoseconds of seeing one token, nanoseconds of one pass with its undoing, and how many logits count as seen.
nb::tuple penalise(Vector logits, Ids seen, float penalty, bool bloom, int rounds) {
  const int vocabulary = int(logits.size());
  for (size_t i = 0; i < seen.size(); i++)
    if (seen.data()[i] < 0 || seen.data()[i] >= vocabulary) throw std::invalid_argument("token id outside the vocabulary");
  if (rounds < 1) throw std::invalid_argument("at least one round");
  zl::TokenHistory history(vocabulary, 0, seen_kind(bloom));
  zl::Sampler sampler(zl::supported_kernels()[0], vocabulary, vocabulary);
  zl::SamplingParameters parameters;
  parameters.repetition_penalty = penalty;
  using Clock = std::chrono::steady_clock;
  const auto per = [](Clock::time_point begin, Clock::time_point end, size_t n) { return std::chrono::duration<double, std::nano>(end - begin).count() / double(n); };
  const auto start = Clock::now();
  for (size_t i = 0; i < seen.size(); i++) history.see_prompt(seen.data()[i]);
  const auto filled = Clock::now();
  for (int round = 0; round < rounds; round++) {
    sampler.penalise(logits.data(), parameters, history);
    sampler.restore(logits.data());
  }
  const auto end = Clock::now();
  const int changed = sampler.penalise(logits.data(), parameters, history);
  return nb::make_tuple(seen.size() ? per(start, filled, seen.size()) : 0.0, per(filled, end, rounds), changed);
}

zl::Engine* make_engine(int layers, int hidden, int heads, int kv_heads, int head_dim, int intermediate, int vocabulary, float rms_eps,
                        float rope_base, int slots, int slot_tokens, int chunk_tokens, int threads, int prefixes, int prefix_tokens, bool exact,
                        bool bloom, const std::string& kernels) {
  const zl::KernelSet* set = zl::find_kernels(kernels);
  if (!set) throw std::invalid_argument("no such kernel set on this processor");
  for (const int n : {layers, hidden, heads, kv_heads, head_dim, intermediate, vocabulary, slots, slot_tokens, chunk_tokens, threads})
    if (n <= 0) throw std::invalid_argument("sizes must be positive");
  const zl::Shape shape{layers, hidden, heads, kv_heads, head_dim, intermediate, vocabulary, rms_eps, rope_base};
  return new zl::Engine(shape, {slots, slot_tokens, chunk_tokens, threads, prefixes, prefix_tokens, exact, seen_kind(bloom)}, set);
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "CPU kernels of zerolayer; see src/zerolayer/native.";
  m.attr("FINE_INPUTS") = zl::kFine;
  nb::exception<zl::DamagedWeights>(m, "DamagedWeights");
  m.def("kernel_sets", &kernel_sets, "Names of the kernel sets that this processor allows, best first.");
  m.def("page_faults", &page_faults, "Of the calling thread, so far.");
  m.def("uniform", &zl::uniform, "seed"_a, "position"_a, "The uniform number that the sampler draws for a token.");

  m.def("penalise", &penalise, "logits"_a, "seen"_a, "penalty"_a, "bloom"_a, "rounds"_a,
        "The sampler's repetition penalty, applied and timed: (ns to see a token, ns a pass, tokens that count as seen).");

  nb::class_<zl::Crew>(m, "Crew")
      .def(nb::init<int>(), "most"_a)
      .def("look", &zl::Crew::look, "now_ns"_a, "wall_ns"_a, "worked_ns"_a)
      .def_prop_ro("threads", &zl::Crew::threads)
      .def_prop_ro("steady", &zl::Crew::steady)
      .def_prop_ro("cores", &zl::Crew::cores);

  nb::class_<zl::Patience>(m, "Patience")
      .def(nb::init<>())
      .def("look", &zl::Patience::look, "now_ns"_a, "wall_ns"_a, "slept_ns"_a, "threads"_a)
      .def_prop_ro("spins", &zl::Patience::spins)
      .def_prop_ro("crowded", &zl::Patience::crowded);

  nb::class_<zl::Offers>(m, "Offers")
      .def(nb::init<>())
      .def("looks", &zl::Offers::looks, "now_ns"_a)
      .def("due", &zl::Offers::due, "now_ns"_a, "unheard_ns"_a)
      .def("made", &zl::Offers::made, "began_ns"_a, "ended_ns"_a);

  nb::class_<zl::Pace>(m, "Pace")
      .def(nb::init<>())
      .def_prop_ro("now", &zl::Pace::now)
      .def_prop_ro("mean", &zl::Pace::mean)
      .def("vote", &zl::Pace::vote, "ratio"_a)
      .def("then", &zl::Pace::then, "behind"_a = zl::kAfter)
      .def("rest", &zl::Pace::rest);

  nb::class_<zl::Overrun>(m, "Overrun")
      .def(nb::init<>())
      .def_prop_ro("ratio", &zl::Overrun::ratio)
      .def("add", &zl::Overrun::add, "ratio"_a);

  nb::class_<zl::StepRow>(m, "StepRow")
      .def_prop_ro("normal", &zl::StepRow::normal)
      .def_prop_ro("bound", &zl::StepRow::bound)
      .def_prop_ro("count", &zl::StepRow::count)
      .def_ro("seen", &zl::StepRow::seen)
      .def("forget", &zl::StepRow::forget);

  nb::class_<zl::StepTimes> step_times(m, "StepTimes");
  step_times.attr("YOUNG") = zl::StepTimes::kYoung;
  step_times.attr("HEADROOM") = zl::StepTimes::kHeadroom;
  step_times.def(nb::init<int, int>(), "slots"_a, "chunk_tokens"_a)
      .def_static("bucket", &zl::StepTimes::bucket, "tokens"_a)
      .def_static("class_of", &zl::StepTimes::class_of, "rows"_a)
      .def("observe", [](zl::StepTimes& times, int rows, int tokens, int64_t elapsed_ns, bool sure) {
        return int(times.observe(rows, tokens, elapsed_ns, sure));
      }, "decode_rows"_a, "prefill_tokens"_a, "elapsed_ns"_a, "sure"_a)
      .def("rest", [](zl::StepTimes& times) { return int(times.rest()); })
      .def("bound_ns", &zl::StepTimes::bound_ns, "decode_rows"_a, "prefill_tokens"_a)
      .def("row", &zl::StepTimes::row, "chunk"_a, "place"_a, nb::rv_policy::reference_internal)
      .def_prop_ro("pace", [](const zl::StepTimes& times) { return times.pace().now(); })
      .def_prop_ro("pace_mean", [](const zl::StepTimes& times) { return times.pace().mean(); })
      .def_prop_ro("steps", &zl::StepTimes::steps)
      .def_prop_ro("scale", &zl::StepTimes::scale)
      .def_prop_ro("backlog", &zl::StepTimes::backlog)
      .def_prop_ro("worst", &zl::StepTimes::worst);

  nb::class_<Tokens>(m, "Tokens")
      .def("__init__", [](Tokens* self, nb::object token, nb::tuple finishes, nb::object logprob, nb::object unsound) {
        if (finishes.size() != 3) throw std::invalid_argument("an end for each kind");
        new (self) Tokens{std::move(token), std::move(finishes), std::move(logprob), std::move(unsound)};
      }, "token"_a, "finishes"_a, "logprob"_a, "unsound"_a);

  nb::class_<TensorArgument>(m, "Tensor")
      .def("__init__", [](TensorArgument* self, int type, Bytes data, int rows, int columns) { new (self) TensorArgument{type, data, rows, columns}; },
           "type"_a, "data"_a, "rows"_a, "columns"_a);

  m.def("dequantise", [](const TensorArgument& tensor, Logits out) {
    const zl::Tensor t = checked(tensor);
    if (int(out.shape(0)) != t.rows || int(out.shape(1)) != t.columns) throw std::invalid_argument("out has the wrong shape");
    const size_t bytes = zl::row_bytes(t.type, size_t(t.columns));
    float* to = out.data();
    nb::gil_scoped_release release;
    for (int row = 0; row < t.rows; row++) zl::dequantise_row(t.type, t.data + bytes * row, size_t(t.columns), to + size_t(row) * t.columns);
  }, "tensor"_a, "out"_a, "Writes the tensor's floats, as the engine reads them.");

  nb::class_<zl::Engine>(m, "Engine")
      .def("__init__", [](zl::Engine* self, nb::kwargs) { (void)self; throw std::invalid_argument("use Engine.create"); })
      .def_static("create", &make_engine, "layers"_a, "hidden"_a, "heads"_a, "kv_heads"_a, "head_dim"_a, "intermediate"_a, "vocabulary"_a,
                  "rms_eps"_a, "rope_base"_a, "slots"_a, "slot_tokens"_a, "chunk_tokens"_a, "threads"_a,
                  "prefixes"_a, "prefix_tokens"_a, "exact"_a, "bloom"_a, "kernels"_a,
                  nb::rv_policy::take_ownership, nb::call_guard<nb::gil_scoped_release>())
      .def("load_qkv", [](zl::Engine& e, int layer, const TensorArgument& q, const TensorArgument& k, const TensorArgument& v, bool interleaved) {
        const zl::Tensor tq = checked(q), tk = checked(k), tv = checked(v);
        nb::gil_scoped_release release;
        e.load_qkv(layer, tq, tk, tv, interleaved);
      }, "layer"_a, "q"_a, "k"_a, "v"_a, "interleaved"_a)
      .def("load_qkv_bias", [](zl::Engine& e, int layer, Floats q, Floats k, Floats v) {
        e.load_qkv_bias(layer, checked(q, e.shape().query_width()), checked(k, e.shape().kv_width()), checked(v, e.shape().kv_width()));
      }, "layer"_a, "q"_a, "k"_a, "v"_a)
      .def("load_head_norms", [](zl::Engine& e, int layer, Floats query, Floats key) {
        e.load_head_norms(layer, checked(query, e.shape().head_dim), checked(key, e.shape().head_dim));
      }, "layer"_a, "query"_a, "key"_a)
      .def("load_output", [](zl::Engine& e, int layer, const TensorArgument& o) {
        const zl::Tensor t = checked(o);
        nb::gil_scoped_release release;
        e.load_output(layer, t);
      }, "layer"_a, "output"_a)
      .def("load_gate_up", [](zl::Engine& e, int layer, const TensorArgument& gate, const TensorArgument& up) {
        const zl::Tensor g = checked(gate), u = checked(up);
        nb::gil_scoped_release release;
        e.load_gate_up(layer, g, u);
      }, "layer"_a, "gate"_a, "up"_a)
      .def("load_down", [](zl::Engine& e, int layer, const TensorArgument& down) {
        const zl::Tensor t = checked(down);
        nb::gil_scoped_release release;
        e.load_down(layer, t);
      }, "layer"_a, "down"_a)
      .def("load_norms", [](zl::Engine& e, int layer, Floats attention, Floats mlp) {
        e.load_norms(layer, checked(attention, e.shape().hidden), checked(mlp, e.shape().hidden));
      }, "layer"_a, "attention"_a, "mlp"_a)
      .def("load_embedding", [](zl::Engine& e, const TensorArgument& embedding, bool is_head) {
        const zl::Tensor t = checked(embedding);
        nb::gil_scoped_release release;
        e.load_embedding(t, is_head);
      }, "embedding"_a, "is_head"_a)
      .def("load_head", [](zl::Engine& e, const TensorArgument& head, Floats norm) {
        const zl::Tensor t = checked(head);
        const float* n = checked(norm, e.shape().hidden);
        nb::gil_scoped_release release;
        e.load_head(t, n);
      }, "head"_a, "norm"_a)
      .def("load_rope_factors", [](zl::Engine& e, Floats factors) { e.load_rope_factors(checked(factors, e.shape().head_dim / 2)); }, "factors"_a)
      .def("find_fine", &zl::Engine::find_fine, nb::call_guard<nb::gil_scoped_release>())
      .def("pack_fine", nb::overload_cast<>(&zl::Engine::pack_fine), nb::call_guard<nb::gil_scoped_release>())
      .def("open", [](zl::Engine& e, int slot, Ids prompt, int max_tokens, float temperature, float top_p, int top_k, float min_p,
                      float repetition_penalty, float presence_penalty, float frequency_penalty, uint64_t seed, int top_logprobs,
                      std::vector<int32_t> stops, int min_tokens, const std::vector<std::pair<int32_t, float>>& bias, int prompt_logprobs,
                      int prefix, int shared, bool masked) {
        zl::SamplingParameters p{temperature, top_p, top_k, min_p, repetition_penalty, presence_penalty, frequency_penalty, seed, top_logprobs,
                                 min_tokens, {}};
        for (const auto& [token, amount] : bias) p.bias.push_back({token, amount});
        e.open(slot, prompt.data(), int(prompt.size()), max_tokens, p, std::move(stops), prompt_logprobs, prefix, shared, masked);
      }, "slot"_a, "prompt"_a, "max_tokens"_a, "temperature"_a, "top_p"_a, "top_k"_a, "min_p"_a, "repetition_penalty"_a,
         "presence_penalty"_a, "frequency_penalty"_a, "seed"_a, "top_logprobs"_a, "stops"_a, "min_tokens"_a = 0,
         "bias"_a = std::vector<std::pair<int32_t, float>>{}, "prompt_logprobs"_a = -1, "prefix"_a = 0, "shared"_a = 0, "masked"_a = false)
      .def("pin", &zl::Engine::pin, "cores"_a)
      .def("follow_threads", [](zl::Engine& e, std::vector<int> counts) {
        if (!std::all_of(counts.begin(), counts.end(), [&](int count) { return count >= 1 && count <= e.limits().threads; }))
          throw std::invalid_argument("no such number of threads");
        e.shift().follow(std::move(counts));
      }, "counts"_a, "For tests: the threads of the coming stages of steps, in turn; none: as many as get most done.")
      .def_prop_ro("threads_now", [](zl::Engine& e) { return e.shift().threads_now(); })
      .def_prop_ro("crowded", [](zl::Engine& e) { return e.shift().crowded(); })
      .def_prop_ro("cores_now", [](zl::Engine& e) { return e.shift().cores_now(); })
      .def("touch", &zl::Engine::touch, "part"_a, "parts"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("close", &zl::Engine::close, "slot"_a)
      .def("prefill_left", &zl::Engine::prefill_left, "slot"_a)
      .def("step", [](zl::Engine& e, const Tokens& tokens, nb::sequence decode, int prefill_slot, int prefill_tokens, int bell, int prefix,
                      int keep) {
        // Not a vector of our own: nothing is allocated in a step but what Python gets back.
        const size_t rows = nb::len(decode);
        if (rows > size_t(e.limits().slots)) throw std::invalid_argument("more decode rows than slots");
        for (size_t i = 0; i < rows; i++) e.plan()[i] = nb::cast<int32_t>(decode[i]);
        const std::vector<zl::Sampled>* sampled;
        {
          nb::gil_scoped_release release;
          if (bell >= 0) e.ring(bell);  // whoever wakes up finds the interpreter free
          sampled = &e.step(e.plan(), int(rows), prefill_slot, prefill_tokens, {prefix, keep});
        }
        return to_python(*sampled, tokens);
      }, "tokens"_a, "decode"_a, "prefill_slot"_a, "prefill_tokens"_a, "bell"_a = -1, "prefix"_a = 0, "keep"_a = 0)
      .def_prop_ro("ended_ns", &zl::Engine::ended_ns)
      .def("scored", [](const zl::Engine& e) {
        nb::list out;
        for (const zl::Choice& choice : e.scored()) out.append(to_python(choice));
        return out;
      }, "The last step's prompt tokens: (logprob, alternatives) of each that follows on one of its chunk.")
      .def("logits", [](zl::Engine& e, Ids tokens, Logits out) {
        if (out.shape(0) != tokens.size() || int(out.shape(1)) != e.shape().vocabulary) throw std::invalid_argument("out has the wrong shape");
        const int32_t* ids = tokens.data();
        float* to = out.data();
        const int count = int(tokens.size());
        nb::gil_scoped_release release;
        e.logits(ids, count, to);
      }, "tokens"_a, "out"_a)
      .def_prop_ro("mask_address", [](zl::Engine& e) { return reinterpret_cast<uintptr_t>(e.masks()); })
      .def_prop_ro("mask_bytes", [](const zl::Engine& e) { return size_t(e.mask_words()) * sizeof(uint32_t); })
      .def("read_once", &zl::Engine::read_once, "slots"_a, "tokens"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("spin", &zl::Engine::spin, "turns"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("products", &zl::Engine::products, "turns"_a, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("weight_bytes", &zl::Engine::weight_bytes)
      .def_prop_ro("kernels", [](const zl::Engine& e) { return std::string(e.kernels()->name); })
      .def_prop_ro("bytes", [](const zl::Engine& e) { return e.arena().bytes(); })
      .def_prop_ro("huge_bytes", [](const zl::Engine& e) { return e.arena().huge_bytes(); });
}
