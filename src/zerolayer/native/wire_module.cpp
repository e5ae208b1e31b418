// The Python face of what the wire does for every request and reply: zerolayer.wire._native. Pure: bytes and numbers in, bytes out.
#include <nanobind/nanobind.h>

#include "numbers.hpp"
#include "plain_type.hpp"
#include "wire_plain.hpp"
#include "wire_planned.hpp"
#include "wire_reply.hpp"
#include "wire_stream.hpp"
#include "wire_template.hpp"
#include "wire_whole.hpp"

namespace nb = nanobind;

namespace {

using zl::Bytes;
using zl::view;
using zl::Written;

// A message of gRPC as it travels: not compressed, and its length.
nb::bytes grpc_frame(nb::bytes message) {
  const size_t size = message.size();
  if (size > UINT32_MAX) throw nb::value_error("a message has less than 4 GB");
  const char prefix[] = {0, char(size >> 24), char(size >> 16), char(size >> 8), char(size)};
  Written out(sizeof prefix + size);
  out << Bytes(prefix, sizeof prefix) << view(message);
  return out.done();
}

// The message that `body` is, where it is one of at most `most` bytes that is not compressed; else None.
nb::object grpc_message(nb::bytes body, size_t most) {
  constexpr size_t kPrefix = 5;
  const Bytes all = view(body);
  if (all.size() < kPrefix || all[0]) return nb::none();
  size_t length = 0;
  for (const char byte : all.substr(1, kPrefix - 1)) length = length << 8 | uint8_t(byte);
  if (length > most || all.size() - kPrefix != length) return nb::none();
  return nb::bytes(all.data() + kPrefix, length);
}

// A varint (https://protobuf.dev/programming-guides/encoding/): seven bits a byte, the lowest first.
struct Varint {
  explicit Varint(uint64_t number) {
    for (; number >= 0x80; number >>= 7) text[size++] = char(number | 0x80);
    text[size++] = char(number);
  }
  operator Bytes() const { return {text, size}; }
  char text[10];
  size_t size = 0;
};

// An `Error` of inference.proto that passes: `before`, the message (2) as `joined` has it, the milliseconds (4), `after`.
nb::bytes later_message(nb::bytes before, nb::tuple parts, uint64_t number, nb::bytes after) {
  constexpr Bytes kMessage = "\x12", kMilliseconds = "\x20";
  const zl::Decimal digits(number);
  const size_t text = zl::joined_size(parts, digits);
  const Varint length(text), milliseconds(number);
  const size_t told = text ? 1 + length.size + text : 0, when = number ? 1 + milliseconds.size : 0;  // what is empty, or 0, is left out
  Written out(before.size() + told + when + after.size());
  out << view(before);
  if (text) out << kMessage << length;
  out.at = zl::put_joined(out.at, parts, digits);
  if (number) out << kMilliseconds << milliseconds;
  out << view(after);
  return out.done();
}

// The same dictionary, or one with each `zl-name` as `x-zl-name` too, where there are such names.
nb::dict own_names(nb::dict values) {
  constexpr Bytes kOwn = "zl-", kExtension = "x-";
  nb::object more;
  for (auto [name, value] : values) {
    const Bytes given = view(name);
    if (given.substr(0, kOwn.size()) != kOwn) continue;
    if (!more.is_valid()) more = nb::steal(PyDict_Copy(values.ptr()));
    if (!more.is_valid()) throw nb::python_error();
    Written own(kExtension.size() + given.size());
    own << kExtension << given;
    more[own.done()] = value;
  }
  return more.is_valid() ? nb::cast<nb::dict>(more) : values;
}

// A table of (state, flags, symbol) by state and half byte.
void read_huffman(zl::Huffman* self, nb::list table) {
  new (self) zl::Huffman;
  if (table.size() != zl::Huffman::kSteps) throw nb::value_error("16 steps of each of 256 states");
  for (size_t i = 0; i < table.size(); i++) {
    nb::tuple step = nb::cast<nb::tuple>(table[i]);
    self->steps[i] = {nb::cast<uint8_t>(step[0]), nb::cast<uint8_t>(step[1]), nb::cast<uint8_t>(step[2])};
  }
}

// None: no text has this coding.
nb::object decode_huffman(const zl::Huffman& self, nb::bytes string) {
  Written text(zl::Huffman::longest(string.size()));
  const char *begin = text.at, *end = self.decode(view(string), text.at);
  return end ? nb::object(nb::bytes(begin, size_t(end - begin))) : nb::none();
}

#define ZL_NUMBER(name) {#name, T_LONGLONG, Py_ssize_t(offsetof(zl::StreamObject, name)), 0, nullptr}
#define ZL_FIELD(name) {#name, T_OBJECT_EX, Py_ssize_t(offsetof(zl::StreamObject, name)), 0, nullptr}
PyMemberDef stream_members[] = {ZL_NUMBER(id),      ZL_NUMBER(window), ZL_NUMBER(sent_bytes), ZL_NUMBER(room),       ZL_NUMBER(received), ZL_NUMBER(pending_bytes),
                                ZL_FIELD(declared), ZL_FIELD(state),   ZL_FIELD(body),        ZL_FIELD(incremental), ZL_FIELD(refused),   ZL_FIELD(pending),
                                ZL_FIELD(ending),   {}};
#undef ZL_NUMBER
#undef ZL_FIELD
PyType_Slot stream_slots[] = {{Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
                              {Py_tp_init, reinterpret_cast<void*>(zl::stream_init)},
                              {Py_tp_dealloc, reinterpret_cast<void*>(zl::stream_dealloc)},
                              {Py_tp_members, stream_members},
                              {0, nullptr}};
PyType_Spec stream_spec = {"zerolayer.wire._native.StreamBase", sizeof(zl::StreamObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, stream_slots};
PyMemberDef sender_numbers[] = {zl::number_at("window", 0), zl::number_at("out_bytes", 1), zl::number_at("place", 2), zl::number_at("free", 3), {}};

}  // namespace

NB_MODULE(_native, m) {
  nb::object stream_base = zl::plain_type(stream_spec);
  m.attr("StreamBase") = stream_base;
  zl::stream_base = stream_base.release().ptr();  // for as long as the process lives
  zl::add_numbers(m, "SenderNumbers", sender_numbers);
  nb::class_<zl::Http1Replies>(m, "Http1Replies").def(nb::init<nb::dict>()).def("render", &zl::Http1Replies::render);
  nb::class_<zl::WholeReplies>(m, "WholeReplies").def(nb::init<nb::handle, nb::handle, int64_t>()).def("put", &zl::WholeReplies::put);
  nb::class_<zl::GrpcLater>(m, "GrpcLater").def(nb::init<nb::bytes, nb::tuple>()).def("fields", &zl::GrpcLater::fields);
  m.def("http2_reply", &zl::http2_reply);
  m.def("http1_when", &zl::when<zl::Http1>);
  m.def("http2_when", &zl::when<zl::Http2>);
  m.def("joined", &zl::joined);
  m.def("later_message", &later_message);
  m.def("own_names", &own_names);
  m.def("grpc_frame", &grpc_frame);
  m.def("grpc_message", &grpc_message);
  nb::class_<zl::WholeRequests>(m, "WholeRequests")
      .def(nb::init<nb::handle, nb::type_object, nb::object>())
      .def("find", &zl::WholeRequests::find)
      .def("open", &zl::WholeRequests::open);
  nb::class_<zl::PlainBodies>(m, "PlainBodies")
      .def(nb::init<nb::callable, nb::handle, nb::object, nb::handle, nb::handle, nb::handle, nb::object, nb::object>())
      .def("decode", &zl::PlainBodies::decode)
      .def("request", &zl::PlainBodies::request);
  nb::class_<zl::PlannedBodies>(m, "PlannedBodies")
      .def(nb::init<nb::handle, nb::handle, nb::object, nb::object, nb::object, nb::object, nb::tuple>())
      .def("decode", &zl::PlannedBodies::decode);
  nb::class_<zl::Huffman>(m, "Huffman").def("__init__", &read_huffman).def("decode", &decode_huffman);
  nb::class_<zl::Template>(m, "Template")
      .def(nb::init<nb::tuple, nb::tuple, nb::object>())
      .def("http1", &zl::Template::http1)
      .def("http2", &zl::Template::http2);
}
