// A piece to each of many sockets: what a step has made for all streams, in one go.
#pragma once

#include <cerrno>
#include <cstddef>
#include <sys/socket.h>

namespace zl {

struct Piece {
  int descriptor;
  const char* data;
  size_t bytes;
  size_t sent = 0;
  size_t place = 0;  // the caller's
};

// Offer each piece to its socket once, without waiting. What the kernel does not take, for whatever reason, stays with the caller.
inline void send_each(Piece* pieces, size_t count) {
  for (Piece* piece = pieces; piece < pieces + count; piece++) {
    ssize_t sent;
    do sent = send(piece->descriptor, piece->data, piece->bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent > 0) piece->sent = size_t(sent);
  }
}

}  // namespace zl
