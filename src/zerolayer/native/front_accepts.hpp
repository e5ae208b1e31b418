// Connections that wait in the kernel, as many as one turn of the loop may take.
#pragma once

#include <cerrno>
#include <cstddef>
#include <sys/socket.h>
#include <vector>

namespace zl {

// Accept at most `most`, none of which blocks or is inherited. Returns why no more: 0 where nobody was left, or there were so many.
inline int accept_each(int listening, size_t most, std::vector<int>& accepted) {
  while (accepted.size() < most) {
    const int descriptor = accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor >= 0) accepted.push_back(descriptor);
    else if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    else if (errno != ECONNABORTED && errno != ECONNRESET && errno != EPIPE && errno != EINTR) return errno;  // those went away before
  }
  return 0;
}

}  // namespace zl
