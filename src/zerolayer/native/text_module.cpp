// The Python face of what is done with a whole vocabulary at once: zerolayer.text._native. Without the GIL, but for looking at the lists.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <memory>

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

// Strings as GGUF writes them: 64 bits of length, then so many bytes. Ends early before one that runs over `end`.
nb::tuple strings(nb::handle data, size_t at, size_t end, size_t count) {
  Py_buffer view;
  if (PyObject_GetBuffer(data.ptr(), &view, PyBUF_SIMPLE)) throw nb::python_error();
  const std::unique_ptr<Py_buffer, decltype(&PyBuffer_Release)> held(&view, &PyBuffer_Release);
  end = std::min(end, size_t(view.len));
  nb::list found;
  for (size_t i = 0; i < count && end >= 8 && at <= end - 8; i++) {
    const char* const length_at = static_cast<const char*>(view.buf) + at;
    uint64_t length = 0;
    for (int byte = 7; byte >= 0; byte--) length = length << 8 | uint8_t(length_at[byte]);
    if (length > end - at - 8) break;
    found.append(nb::bytes(length_at + 8, size_t(length)));
    at += 8 + size_t(length);
  }
  return nb::make_tuple(found, at);
}

// -1 for what no kind can be: the numbers are a stranger's.
int64_t kind_of(nb::handle number) {
  int overflow = 0;
  const int64_t kind = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (kind == -1 && PyErr_Occurred()) throw nb::python_error();
  return overflow ? -1 : kind;
}

// Of tokens of kind `normal` the bytes that their letters stand for, by `alphabet`, which has a letter for each byte; of others, and where
// a letter stands for none, the token itself.
nb::list byte_level(const nb::list& tokens, const nb::list& kinds, nb::str alphabet, int normal) {
  std::vector<int> byte_of(0x400, -1);
  for (int byte = 0; byte < 256; byte++) byte_of.at(PyUnicode_ReadChar(alphabet.ptr(), byte)) = byte;
  nb::list out;
  std::string bytes;
  for (size_t i = 0; i < tokens.size(); i++) {
    const nb::bytes token(tokens[i]);
    const std::string_view letters{token.c_str(), token.size()};
    bool stands = kind_of(kinds[i]) == normal, ascii = true;
    bytes.clear();
    for (size_t at = 0; stands && at < letters.size(); at++) {
      const uint8_t first = uint8_t(letters[at]);
      int letter = first;
      if (first >= 0x80) {  // of two bytes: the alphabet has no longer ones, nor one below U+0080 in two
        ascii = false;
        const bool pair = first >= 0xc2 && first < 0xd0 && at + 1 < letters.size() && (uint8_t(letters[at + 1]) & 0xc0) == 0x80;
        letter = pair ? (first & 0x1f) << 6 | (uint8_t(letters[++at]) & 0x3f) : -1;
      }
      stands = letter >= 0 && byte_of[letter] >= 0;
      bytes.push_back(char(stands ? byte_of[letter] : 0));
    }
    if (stands && !ascii) out.append(nb::bytes(bytes.data(), bytes.size()));
    else out.append(token);
  }
  return out;
}

// Of each piece its text; the empty one for kinds in `silent`, None where its bytes are no whole characters.
nb::list texts(const nb::list& pieces, const nb::list& kinds, const std::vector<int64_t>& silent) {
  nb::list out;
  const nb::str empty("");
  for (size_t i = 0; i < pieces.size(); i++) {
    const nb::bytes piece(pieces[i]);
    if (std::find(silent.begin(), silent.end(), kind_of(kinds[i])) != silent.end()) {
      out.append(empty);
      continue;
    }
    PyObject* const text = PyUnicode_DecodeUTF8(piece.c_str(), Py_ssize_t(piece.size()), nullptr);
    if (!text && !PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) throw nb::python_error();
    PyErr_Clear();
    out.append(text ? nb::steal(text) : nb::none());
  }
  return out;
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "Byte-pair vocabularies of zerolayer; see src/zerolayer/native/text_*.hpp.";

  m.def("strings", &strings, "data"_a, "at"_a, "end"_a, "count"_a, nb::sig("def strings(data: Buffer, at: int, end: int, count: int) -> tuple[list[bytes], int]"),
        "Length-prefixed strings, and where they end: before the first that runs over `end`.");
  m.def("byte_level", &byte_level, "tokens"_a, "kinds"_a, "alphabet"_a, "normal"_a, "The bytes that each token stands for.");
  m.def("texts", &texts, "pieces"_a, "kinds"_a, "silent"_a, "The text of each piece, None where it is only a part of a character.");

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
