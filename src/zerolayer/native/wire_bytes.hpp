// Headers and replies as bytes, in the spelling of a protocol (RFC 9112, RFC 9113, RFC 7541). No Python, no state.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace zl {

using Bytes = std::string_view;

inline char* put(char* at, Bytes bytes) {
  std::memcpy(at, bytes.data(), bytes.size());
  return at + bytes.size();
}

// A number in decimal digits.
class Decimal {
 public:
  explicit Decimal(uint64_t number) : end_(std::to_chars(text_, text_ + sizeof text_, number).ptr) {}
  operator Bytes() const { return {text_, size_t(end_ - text_)}; }

 private:
  char text_[20];
  char* end_;
};

// A header as a line.
struct Http1 {
  static bool sound(Bytes value) { return value.find_first_of("\r\n") == Bytes::npos; }
  static size_t size(Bytes name, Bytes value) { return name.size() + value.size() + 4; }
  static char* put_header(char* at, Bytes name, Bytes value) { return put(put(put(put(at, name), ": "), value), "\r\n"); }
};

// A header as a literal without indexing, no Huffman coding (RFC 7541 section 6.2.2).
struct Http2 {
  static bool sound(Bytes value) { return value.find_first_of(Bytes("\r\n\0", 3)) == Bytes::npos; }
  static size_t size(Bytes name, Bytes value) { return name_size(name, value.size()) + value.size(); }
  static char* put_header(char* at, Bytes name, Bytes value) { return put(put_name(at, name, value.size()), value); }
  // What stands before a value of so many bytes.
  static size_t name_size(Bytes name, size_t value) { return 1 + length_size(name.size()) + name.size() + length_size(value); }
  static char* put_name(char* at, Bytes name, size_t value) {
    *at++ = 0;
    return put_length(put(put_length(at, name.size()), name), value);
  }

 private:
  // An integer with a prefix of seven bits (RFC 7541 section 5.1).
  static size_t length_size(size_t length) {
    if (length < 0x7F) return 1;
    size_t size = 2;
    for (length -= 0x7F; length >= 0x80; length >>= 7) size++;
    return size;
  }
  static char* put_length(char* at, size_t length) {
    if (length < 0x7F) {
      *at++ = char(length);
      return at;
    }
    *at++ = 0x7F;
    for (length -= 0x7F; length >= 0x80; length >>= 7) *at++ = char(0x80 | (length & 0x7F));
    *at++ = char(length);
    return at;
  }
};

constexpr size_t kFrameHeaderBytes = 9;
constexpr size_t kFrameBytes = 16'384;  // the largest payload that everybody takes
enum Frame : uint8_t { kData = 0, kHeaders = 1 };
enum FrameFlag : uint8_t { kEndStream = 1, kEndHeaders = 4 };

inline char* put_frame_header(char* at, size_t size, uint8_t kind, uint8_t flags, uint32_t stream) {
  const char bytes[kFrameHeaderBytes] = {char(size >> 16),   char(size >> 8),    char(size),       char(kind), char(flags),
                                         char(stream >> 24), char(stream >> 16), char(stream >> 8), char(stream)};
  return put(at, {bytes, sizeof bytes});
}

// The beginning of a frame in `data`, which holds its header wholly.
struct FrameView {
  explicit FrameView(const char* data) {
    const auto* byte = reinterpret_cast<const uint8_t*>(data);
    size = size_t(byte[0]) << 16 | size_t(byte[1]) << 8 | byte[2];
    kind = byte[3];
    flags = byte[4];
    stream = (uint32_t(byte[5]) << 24 | uint32_t(byte[6]) << 16 | uint32_t(byte[7]) << 8 | byte[8]) & 0x7FFFFFFF;
  }
  size_t size;
  uint8_t kind, flags;
  uint32_t stream;
};

// A request that is complete: a header block in one frame, and a body in one frame that follows it, or none.
struct WholeRequest {
  uint32_t stream;
  Bytes block, body;
  size_t end;
};

inline bool find_whole_request(Bytes data, size_t at, WholeRequest& found) {
  if (at > data.size() || data.size() - at < kFrameHeaderBytes) return false;
  const FrameView head(data.data() + at);
  if (head.kind != kHeaders || !(head.stream & 1) || head.size > kFrameBytes) return false;
  at += kFrameHeaderBytes;
  if (data.size() - at < head.size) return false;
  found.stream = head.stream;
  found.block = data.substr(at, head.size);
  found.body = {};
  found.end = at += head.size;
  if (head.flags == (kEndHeaders | kEndStream)) return true;
  if (head.flags != kEndHeaders || data.size() - at < kFrameHeaderBytes) return false;
  const FrameView body(data.data() + at);
  if (body.kind != kData || body.flags != kEndStream || body.stream != head.stream || !body.size || body.size > kFrameBytes) return false;
  at += kFrameHeaderBytes;
  if (data.size() - at < body.size) return false;
  found.body = data.substr(at, body.size);
  found.end = at + body.size;
  return true;
}

}  // namespace zl
