// Complete replies, and what refusals say, as bytes of a protocol. Included by wire_module.cpp only, as it knows Python.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include <string>

#include "front_slots.hpp"
#include "wire_stream.hpp"
#include "wire_template.hpp"

namespace zl {

namespace nb = nanobind;

// Bytes of a known size that are written once; nobody else has them yet.
class Written {
 public:
  explicit Written(size_t size) : bytes_(nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, Py_ssize_t(size)))) {
    if (!bytes_.is_valid()) throw nb::python_error();
    at = PyBytes_AS_STRING(bytes_.ptr());
  }
  Written& operator<<(Bytes bytes) {
    at = put(at, bytes);
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

constexpr Bytes kContentLength = "content-length", kClose = "connection: close\r\n";

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
    const Decimal length(body.size());
    size_t size = line.size() + known.size() + headers_size<Http1>(headers) + 2 + content.size();
    if (has_content) size += Http1::size(kContentLength, length);
    if (!keep_alive) size += kClose.size();
    Written out(size);
    out << line << known;
    put_headers<Http1>(out, headers);
    if (has_content) out.at = Http1::put_header(out.at, kContentLength, length);
    if (!keep_alive) out << kClose;
    out << "\r\n" << content;
    return out.done();
  }

 private:
  static constexpr size_t kMost = 1000;
  std::string lines_[kMost];
};

// HEADERS, then DATA and a second HEADERS where there is something for them; None where a block takes more than a frame.
inline nb::object http2_reply(uint32_t stream, nb::bytes status, nb::bytes common, nb::tuple headers, nb::bytes body, nb::bytes trailers) {
  const Bytes known = view(common), content = view(body), last = view(trailers);
  const size_t block = status.size() + known.size() + headers_size<Http2>(headers);
  if (block > kFrameBytes || content.size() > kFrameBytes || last.size() > kFrameBytes) return nb::none();
  size_t size = kFrameHeaderBytes + block;
  if (!content.empty()) size += kFrameHeaderBytes + content.size();
  if (!last.empty()) size += kFrameHeaderBytes + last.size();
  Written out(size);
  const bool alone = content.empty() && last.empty();
  out.at = put_frame_header(out.at, block, kHeaders, alone ? kEndHeaders | kEndStream : kEndHeaders, stream);
  out << view(status) << known;
  put_headers<Http2>(out, headers);
  if (!content.empty()) {
    out.at = put_frame_header(out.at, content.size(), kData, last.empty() ? kEndStream : 0, stream);
    out << content;
  }
  if (!last.empty()) {
    out.at = put_frame_header(out.at, last.size(), kHeaders, kEndHeaders | kEndStream, stream);
    out << last;
  }
  return out.done();
}

inline Bytes shown_ticket(const nb::str& ticket) {
  Py_ssize_t length;
  const char* text = PyUnicode_AsUTF8AndSize(ticket.ptr(), &length);
  if (!text) throw nb::python_error();
  const Bytes shown(text, size_t(length));
  if (!is_ascii(shown, ' ')) throw nb::value_error("a ticket is visible ascii, without a line break");
  return shown;
}

template <class Spelling>
nb::bytes when(uint64_t ms, nb::str ticket) {
  constexpr Bytes kTicket = "x-zl-ticket", kMs = "retry-after-ms", kSeconds = "retry-after", kRetry = "x-should-retry", kTrue = "true";
  const Decimal milliseconds(ms), seconds((ms + 999) / 1000);
  size_t size = Spelling::size(kMs, milliseconds) + Spelling::size(kSeconds, seconds) + Spelling::size(kRetry, kTrue);
  const Bytes shown = shown_ticket(ticket);
  if (!shown.empty()) size += Spelling::size(kTicket, shown);
  Written out(size);
  if (!shown.empty()) out.at = Spelling::put_header(out.at, kTicket, shown);
  out.at = Spelling::put_header(out.at, kMs, milliseconds);
  out.at = Spelling::put_header(out.at, kSeconds, seconds);
  out.at = Spelling::put_header(out.at, kRetry, kTrue);
  return out.done();
}

// Whole replies of HTTP/2 behind what a connection collects already: nearly every reply that is no stream.
class WholeReplies {
 public:
  // `sender` is the type of who collects (wire/http2_sending.py), `enough` are the bytes from which on bodies wait.
  WholeReplies(nb::handle sender, nb::handle stream, int64_t enough)
      : sender_(nb::borrow(sender)), stream_(nb::borrow(stream)), enough_(enough), window_(sender, "window"), out_bytes_(sender, "out_bytes"),
        out_(sender, "out"), held_(sender, "held"), block_start_(sender, "block_start") {}

  // As _native.pyi has it.
  bool put(nb::handle to, nb::handle of, nb::bytes status, nb::bytes common, nb::tuple headers, nb::bytes body, nb::bytes trailers) const {
    PyObject* sender = to.ptr();
    if (!is(sender, sender_) || !is(of.ptr(), stream_)) throw nb::type_error("a sender and a stream are expected");
    StreamObject* told = stream(of.ptr());
    PyObject *out = out_.of(sender), *start = block_start_.of(sender);
    if (!out || !PyList_Check(out) || !start || !PyBytes_Check(start)) throw nb::type_error("a sender has what it collects");
    const int64_t size = int64_t(body.size());
    if (size > window_.of(sender) || size > told->window || out_bytes_.of(sender) >= enough_) return false;
    if (held_.of(sender) != Py_False || bytes_in(start)) return false;
    const nb::object frames = http2_reply(uint32_t(told->id), status, common, headers, body, trailers);
    if (frames.is_none()) return false;
    if (PyList_Append(out, frames.ptr()) != 0) throw nb::python_error();
    window_.of(sender) -= size;
    out_bytes_.of(sender) += int64_t(bytes_in(frames.ptr()));
    told->sent_bytes += size;
    return true;
  }

 private:
  const nb::object sender_, stream_;
  const int64_t enough_;
  const Number window_, out_bytes_;
  const Slot out_, held_, block_start_;
};

inline size_t joined_size(const nb::tuple& parts, Bytes digits) {
  size_t size = parts.size() ? (parts.size() - 1) * digits.size() : 0;
  for (nb::handle part : parts) size += view(part).size();
  return size;
}

inline char* put_joined(char* at, const nb::tuple& parts, Bytes digits) {
  bool first = true;
  for (nb::handle part : parts) {
    if (!first) at = put(at, digits);
    at = put(at, view(part));
    first = false;
  }
  return at;
}

// `parts` with the decimal digits of `number` between each two of them.
inline nb::bytes joined(nb::tuple parts, uint64_t number) {
  const Decimal digits(number);
  Written out(joined_size(parts, digits));
  out.at = put_joined(out.at, parts, digits);
  return out.done();
}

// Refusals of gRPC that pass, of one kind: what all of them say, the message around its milliseconds, and what changes.
class GrpcLater {
 public:
  GrpcLater(nb::bytes constant, nb::tuple parts) : constant_(constant), parts_(parts) {
    for (nb::handle part : parts)
      if (!Http2::sound(view(part))) throw nb::value_error("a header must not hold a line break");
  }

  nb::bytes fields(uint64_t ms, nb::str ticket) const {
    constexpr Bytes kMessage = "grpc-message", kPushback = "grpc-retry-pushback-ms", kTicket = "zl-ticket";
    const Decimal milliseconds(ms);
    const Bytes constant = view(constant_), shown = shown_ticket(ticket);
    const size_t message = joined_size(parts_, milliseconds);
    size_t size = constant.size() + Http2::name_size(kMessage, message) + message + Http2::size(kPushback, milliseconds);
    if (!shown.empty()) size += Http2::size(kTicket, shown);
    Written out(size);
    out << constant;
    out.at = put_joined(Http2::put_name(out.at, kMessage, message), parts_, milliseconds);
    out.at = Http2::put_header(out.at, kPushback, milliseconds);
    if (!shown.empty()) out.at = Http2::put_header(out.at, kTicket, shown);
    return out.done();
  }

 private:
  nb::bytes constant_;
  nb::tuple parts_;
};

}  // namespace zl
