// Values of headers: what one may be, and Huffman coding (RFC 7541 section 5.2).
#pragma once

#include <array>

#include "wire_bytes.hpp"

namespace zl {

inline bool is_visible(char byte) { return uint8_t(byte) > 0x20 && uint8_t(byte) != 0x7F; }

inline bool is_ascii(Bytes value, uint8_t least) {
  for (const char byte : value)
    if (uint8_t(byte) < least || uint8_t(byte) > 0x7E) return false;
  return true;
}

// Without spaces.
inline bool is_ascii_visible(Bytes value) { return is_ascii(value, 0x21); }

// RFC 9110 section 5.5: visible bytes, tabs and spaces between them, or nothing.
inline bool is_value(Bytes value) {
  if (value.empty()) return true;
  if (!is_visible(value.front()) || !is_visible(value.back())) return false;
  for (const char byte : value)
    if (!is_visible(byte) && byte != ' ' && byte != '\t') return false;
  return true;
}

inline bool is_number(Bytes value, size_t most_digits) {
  if (value.empty() || value.size() > most_digits) return false;
  for (const char byte : value)
    if (byte < '0' || byte > '9') return false;
  return true;
}

// Half bytes as steps of an automaton.
class Huffman {
 public:
  static constexpr size_t kSteps = 256 * 16;
  enum Flag : uint8_t { kComplete = 1, kEmit = 2, kFail = 4 };
  struct Step {
    uint8_t state, flags, symbol;
  };
  std::array<Step, kSteps> steps;

  // The shortest code has five bits.
  static constexpr size_t longest(size_t bytes) { return bytes * 8 / 5; }

  // The end of the text at `text`, which has room for the longest one; null where no text has this coding.
  char* decode(Bytes string, char* text) const {
    uint8_t state = 0, flags = kComplete;
    for (const char byte : string) {
      for (const int nibble : {uint8_t(byte) >> 4, byte & 0xF}) {
        const Step& step = steps[size_t(state) << 4 | size_t(nibble)];
        if (step.flags & kFail) return nullptr;
        if (step.flags & kEmit) *text++ = char(step.symbol);
        state = step.state;
        flags = step.flags;
      }
    }
    return flags & kComplete ? text : nullptr;
  }
};

}  // namespace zl
