// The Python face of what the wire does for every request and reply: zerolayer.wire._native. Pure: bytes and numbers in, bytes out.
#include <nanobind/nanobind.h>

#include <string>

#include "numbers.hpp"
#include "plain_type.hpp"
#include "wire_template.hpp"
#include "wire_whole.hpp"

namespace nb = nanobind;

namespace {

using zl::Bytes;
using zl::view;

// Bytes of a known size that are written once; nobody else has them yet.
class Written {
 public:
  explicit Written(size_t size) : bytes_(nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, Py_ssize_t(size)))) {
    if (!bytes_.is_valid()) throw nb::python_error();
    at = PyBytes_AS_STRING(bytes_.ptr());
  }
  Written& operator<<(Bytes bytes) {
    at = zl::put(at, bytes);
    return *this;
  }
  nb::bytes done() const { return bytes_; }
  char* at;

 private:
  nb::bytes bytes_;
};

template <class Each>
void each_header(const nb::tuple& headers, Each each) {
  for (nb::handle header : headers) {
    if (!PyTuple_Check(header.ptr()) || PyTuple_GET_SIZE(header.ptr()) != 2) throw nb::type_error("a header is a name and a value");
    each(view(nb::handle(PyTuple_GET_ITEM(header.ptr(), 0))), view(nb::handle(PyTuple_GET_ITEM(header.ptr(), 1))));
  }
}

template <class Spelling>
size_t headers_size(const nb::tuple& headers) {
  size_t size = 0;
  each_header(headers, [&](Bytes name, Bytes value) {
    if (!Spelling::sound(value)) throw nb::value_error("a header must not hold a line break");
    size += Spelling::size(name, value);
  });
  return size;
}

template <class Spelling>
void put_headers(Written& out, const nb::tuple& headers) {
  each_header(headers, [&](Bytes name, Bytes value) { out.at = Spelling::put_header(out.at, name, value); });
}

constexpr Bytes kLength = "content-length", kClose = "connection: close\r\n";

class Http1Replies {
 public:
  explicit Http1Replies(nb::dict lines) {
    for (auto [status, line] : lines) {
      const size_t number = nb::cast<size_t>(status);
      if (number >= kMost) throw nb::value_error("a status has three digits");
      lines_[number] = std::string(view(line));
    }
  }

  nb::bytes render(size_t status, nb::bytes common, nb::tuple headers, nb::bytes body, bool keep_alive, bool head_only) const {
    if (status >= kMost || lines_[status].empty()) throw nb::key_error("a status without its line");
    const bool has_content = status != 204 && status != 304;
    const Bytes line = lines_[status], known = view(common), content = has_content && !head_only ? view(body) : Bytes();
    const zl::Decimal length(body.size());
    size_t size = line.size() + known.size() + headers_size<zl::Http1>(headers) + 2 + content.size();
    if (has_content) size += zl::Http1::size(kLength, length);
    if (!keep_alive) size += kClose.size();
    Written out(size);
    out << line << known;
    put_headers<zl::Http1>(out, headers);
    if (has_content) out.at = zl::Http1::put_header(out.at, kLength, length);
    if (!keep_alive) out << kClose;
    out << "\r\n" << content;
    return out.done();
  }

 private:
  static constexpr size_t kMost = 1000;
  std::string lines_[kMost];
};

// HEADERS, then DATA and a second HEADERS where there is something for them; None where a block takes more than a frame.
nb::object http2_reply(uint32_t stream, nb::bytes status, nb::bytes common, nb::tuple headers, nb::bytes body, nb::bytes trailers) {
  const Bytes known = view(common), content = view(body), last = view(trailers);
  const size_t block = status.size() + known.size() + headers_size<zl::Http2>(headers);
  if (block > zl::kFrameBytes || content.size() > zl::kFrameBytes || last.size() > zl::kFrameBytes) return nb::none();
  size_t size = zl::kFrameHeaderBytes + block;
  if (!content.empty()) size += zl::kFrameHeaderBytes + content.size();
  if (!last.empty()) size += zl::kFrameHeaderBytes + last.size();
  Written out(size);
  const bool alone = content.empty() && last.empty();
  out.at = zl::put_frame_header(out.at, block, zl::kHeaders, alone ? zl::kEndHeaders | zl::kEndStream : zl::kEndHeaders, stream);
  out << view(status) << known;
  put_headers<zl::Http2>(out, headers);
  if (!content.empty()) {
    out.at = zl::put_frame_header(out.at, content.size(), zl::kData, last.empty() ? zl::kEndStream : 0, stream);
    out << content;
  }
  if (!last.empty()) {
    out.at = zl::put_frame_header(out.at, last.size(), zl::kHeaders, zl::kEndHeaders | zl::kEndStream, stream);
    out << last;
  }
  return out.done();
}

template <class Spelling>
nb::bytes when(uint64_t ms, nb::str ticket) {
  constexpr Bytes kTicket = "x-zl-ticket", kMs = "retry-after-ms", kSeconds = "retry-after", kRetry = "x-should-retry", kTrue = "true";
  const zl::Decimal milliseconds(ms), seconds((ms + 999) / 1000);
  size_t size = Spelling::size(kMs, milliseconds) + Spelling::size(kSeconds, seconds) + Spelling::size(kRetry, kTrue);
  Py_ssize_t length;
  const char* text = PyUnicode_AsUTF8AndSize(ticket.ptr(), &length);
  if (!text) throw nb::python_error();
  const Bytes shown(text, size_t(length));
  if (!zl::is_ascii(shown, ' ')) throw nb::value_error("a ticket is visible ascii, without a line break");
  if (!shown.empty()) size += Spelling::size(kTicket, shown);
  Written out(size);
  if (!shown.empty()) out.at = Spelling::put_header(out.at, kTicket, shown);
  out.at = Spelling::put_header(out.at, kMs, milliseconds);
  out.at = Spelling::put_header(out.at, kSeconds, seconds);
  out.at = Spelling::put_header(out.at, kRetry, kTrue);
  return out.done();
}

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

// `parts` with the decimal digits of `number` between each two of them.
nb::bytes joined(nb::tuple parts, uint64_t number) {
  const zl::Decimal decimal(number);
  const Bytes digits = decimal;
  size_t size = parts.size() ? (parts.size() - 1) * digits.size() : 0;
  for (nb::handle part : parts) size += view(part).size();
  Written out(size);
  bool first = true;
  for (nb::handle part : parts) {
    if (!first) out << digits;
    out << view(part);
    first = false;
  }
  return out.done();
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
  const zl::Decimal decimal(number);
  const Bytes digits = decimal;
  size_t text = parts.size() ? (parts.size() - 1) * digits.size() : 0;
  for (nb::handle part : parts) text += view(part).size();
  const Varint length(text), milliseconds(number);
  const size_t told = text ? 1 + length.size + text : 0, when = number ? 1 + milliseconds.size : 0;  // what is empty, or 0, is left out
  Written out(before.size() + told + when + after.size());
  out << view(before);
  if (text) out << kMessage << length;
  bool first = true;
  for (nb::handle part : parts) {
    if (!first) out << digits;
    out << view(part);
    first = false;
  }
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
  m.attr("StreamBase") = zl::plain_type(stream_spec);
  zl::add_numbers(m, "SenderNumbers", sender_numbers);
  nb::class_<Http1Replies>(m, "Http1Replies").def(nb::init<nb::dict>()).def("render", &Http1Replies::render);
  m.def("http2_reply", &http2_reply);
  m.def("http1_when", &when<zl::Http1>);
  m.def("http2_when", &when<zl::Http2>);
  m.def("joined", &joined);
  m.def("later_message", &later_message);
  m.def("own_names", &own_names);
  m.def("grpc_frame", &grpc_frame);
  m.def("grpc_message", &grpc_message);
  nb::class_<zl::WholeRequests>(m, "WholeRequests").def(nb::init<nb::handle>()).def("find", &zl::WholeRequests::find);
  nb::class_<zl::Huffman>(m, "Huffman").def("__init__", &read_huffman).def("decode", &decode_huffman);
  nb::class_<zl::Template>(m, "Template")
      .def(nb::init<nb::tuple, nb::tuple, nb::object>())
      .def("http1", &zl::Template::http1)
      .def("http2", &zl::Template::http2);
}
