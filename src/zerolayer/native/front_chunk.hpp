// The size line of a chunk (RFC 9112 section 7.1).
#pragma once

#include <cstddef>

namespace zl {

// Hexadecimal digits of `bytes`; how many were written, at most 16.
inline size_t size_digits(size_t bytes, char* out) {
  size_t digits = 1;
  for (size_t rest = bytes >> 4; rest; rest >>= 4) digits++;
  for (size_t place = digits; place-- > 0; bytes >>= 4) out[place] = "0123456789abcdef"[bytes & 15];
  return digits;
}

}  // namespace zl
