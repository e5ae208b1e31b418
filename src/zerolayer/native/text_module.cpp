// The Python face of what is done with a whole vocabulary at once: zerolayer.text._native. Without the GIL, but for looking at the lists.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "text_bpe.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

// Views into the bytes of a list, which must outlive them unchanged.
zl::Strings views(const nb::list& list) {
  zl::Strings out;
  out.reserve(list.size());
  for (const nb::handle item : list) {
    if (!nb::isinstance<nb::bytes>(item)) throw nb::type_error("a list of bytes");
    const auto bytes = nb::borrow<nb::bytes>(item);
    out.emplace_back(bytes.c_str(), bytes.size());
  }
  return out;
}

const char* why(zl::Proof proof) {
  switch (proof) {
    case zl::Proof::kEqual: return "";
    case zl::Proof::kNotTwoHalves: return "a token is not its two halves";
    case zl::Proof::kNotFromBytes: return "a merge starts from something other than bytes";
    case zl::Proof::kSeveralPairs: return nullptr;
    case zl::Proof::kMadeLater: return "a token is made of tokens that are merged later";
    case zl::Proof::kUnreachable: break;
  }
  return "a token cannot be reached by its own merges";
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "Byte-pair vocabularies of zerolayer; see src/zerolayer/native/text_*.hpp.";

  nb::class_<zl::Merges>(m, "Merges")
      .def("__init__", [](zl::Merges* self, const nb::list& lines, const nb::list& tokens) {
        const zl::Strings wanted = views(lines), known = views(tokens);
        nb::gil_scoped_release release;
        new (self) zl::Merges(wanted, known);
      }, "lines"_a, "tokens"_a)
      .def_ro("left", &zl::Merges::left)
      .def_ro("right", &zl::Merges::right)
      .def_ro("merged", &zl::Merges::merged)
      .def("rank", nb::overload_cast<int32_t, int32_t>(&zl::Merges::rank, nb::const_), "first"_a, "second"_a)
      .def("why_not_by_strings", [](const zl::Merges& self, const nb::list& pieces) {
        const zl::Strings told = views(pieces);
        nb::gil_scoped_release release;
        return why(self.prove(told));
      }, "pieces"_a, nb::sig("def why_not_by_strings(self, pieces: list[bytes]) -> str | None"),
         "Why merging by strings differs from merging by pairs: empty where it does not, None where tokens have several pairs.");
}
