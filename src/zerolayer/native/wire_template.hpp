// Heads that differ from an earlier one in some values only: what changes is read, the rest is compared. Makes Python's heads.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "wire_bytes.hpp"
#include "wire_values.hpp"

namespace zl {

namespace nb = nanobind;

inline Bytes view(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }
inline Bytes view(nb::handle object) {
  if (!PyBytes_Check(object.ptr())) throw nb::type_error("bytes are expected");
  return {PyBytes_AS_STRING(object.ptr()), size_t(PyBytes_GET_SIZE(object.ptr()))};
}

// Constant bytes with holes between them, each of which is the value of a header. `head` is the first that had this form.
class Template {
 public:
  static constexpr size_t kMostHoles = 8;

  Template(nb::tuple constants, nb::tuple places, nb::object head) : constants_(constants), type_(nb::borrow(head.type())) {
    static constexpr const char* kNames[] = {"method", "path", "query", "headers", "minor", "keep_alive", "expects_continue", "content_length", "values"};
    if (places.size() > kMostHoles || constants.size() != places.size() + 1) throw nb::value_error("one constant more than holes, which are few");
    for (nb::handle constant : constants) view(constant);
    for (const char* name : kNames) fields_.push_back(head.attr(name));
    fields_.push_back(head);
    if (!PyTuple_Check(fields_[kHeaders].ptr()) || !PyDict_Check(fields_[kValues].ptr())) throw nb::type_error("a head has headers and values");
    for (nb::handle place : places) {
      const size_t at = nb::cast<size_t>(place);
      if (at >= nb::len(fields_[kHeaders])) throw nb::index_error("a hole is in a header");
      holes_.push_back({at, nb::cast<nb::bytes>(fields_[kHeaders][at][0])});
    }
  }

  // The head that `raw` is, or None. Values have one space before them and none after, as nearly everybody sends it.
  nb::object http1(nb::bytes raw) const {
    nb::object values[kMostHoles];
    const Bytes all = view(raw);
    size_t at = 0;
    if (!passes(all, at, 0)) return nb::none();
    for (size_t i = 0; i < holes_.size(); i++) {
      if (at >= all.size() || all[at] != ' ') return nb::none();
      const size_t end = all.find('\r', ++at);
      if (end == Bytes::npos || all.substr(end, 2) != "\r\n" || !is_value(all.substr(at, end - at))) return nb::none();
      values[i] = nb::bytes(all.data() + at, end - at);
      at = end;
      if (!passes(all, at, i + 1)) return nb::none();
    }
    return at == all.size() ? filled(values) : nb::none();
  }

  // The same of a header block (RFC 7541). ValueError: a string has no Huffman coding.
  nb::object http2(nb::bytes block, const Huffman& huffman) const {
    nb::object values[kMostHoles];
    char decoded[Huffman::longest(kLongest)];
    const Bytes all = view(block);
    size_t at = 0;
    if (!passes(all, at, 0)) return nb::none();
    for (size_t i = 0; i < holes_.size(); i++) {
      if (at >= all.size()) return nb::none();
      const size_t start = at + 1, length = uint8_t(all[at]) & kLongest;
      const bool coded = uint8_t(all[at]) & 0x80;
      at = start + length;
      if (length == kLongest || !passes(all, at, i + 1)) return nb::none();
      Bytes value = all.substr(start, length);
      if (coded) {
        const char* end = huffman.decode(value, decoded);
        if (!end) throw nb::value_error("no text has this coding");
        value = {decoded, size_t(end - decoded)};
      }
      if (!is_value(value)) return nb::none();
      values[i] = nb::bytes(value.data(), value.size());
    }
    return at == all.size() ? filled(values) : nb::none();
  }

 private:
  enum Field { kHeaders = 3, kContentLength = 7, kValues = 8, kFields = 10 };
  struct Hole {
    size_t place;
    nb::bytes name;
  };
  static constexpr size_t kLongest = 0x7F;  // a string from here on has a longer length, and goes to the decoder
  static constexpr size_t kDigits = 15;

  bool passes(Bytes all, size_t& at, size_t number) const {
    const Bytes constant = view(nb::handle(PyTuple_GET_ITEM(constants_.ptr(), Py_ssize_t(number))));
    if (at > all.size() || all.substr(at, constant.size()) != constant) return false;
    at += constant.size();
    return true;
  }

  // The head with these values, which are well-formed; None where one says more than itself.
  nb::object filled(const nb::object* given) const {
    PyObject* arguments[kFields];
    for (size_t i = 0; i < kFields; i++) arguments[i] = fields_[i].ptr();
    nb::list headers(fields_[kHeaders]);
    nb::object values = nb::steal(PyDict_Copy(arguments[kValues])), length;
    if (!values.is_valid()) throw nb::python_error();
    for (const Hole& hole : holes_) {
      const nb::object& value = *given++;
      headers[hole.place] = nb::make_tuple(hole.name, value);
      values[hole.name] = value;
      if (view(hole.name) == "content-length") {
        uint64_t number = 0;
        if (!is_number(view(value), kDigits)) return nb::none();
        std::from_chars(view(value).data(), view(value).data() + view(value).size(), number);
        length = nb::int_(number);
        arguments[kContentLength] = length.ptr();
      }
    }
    const nb::tuple shown(headers);
    arguments[kHeaders] = shown.ptr();
    arguments[kValues] = values.ptr();
    PyObject* made = PyObject_Vectorcall(type_.ptr(), arguments, kFields, nullptr);
    if (!made) throw nb::python_error();
    return nb::steal(made);
  }

  nb::tuple constants_;
  nb::object type_;
  std::vector<nb::object> fields_;  // of the head, and the head itself, in the order in which a head is made
  std::vector<Hole> holes_;
};

}  // namespace zl
