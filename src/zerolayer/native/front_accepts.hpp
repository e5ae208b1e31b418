// Connections that wait in the kernel, as many as one turn of the loop may take.
#pragma once

#include <arpa/inet.h>

#include <cerrno>
#include <cstddef>
#include <netinet/in.h>
#include <sys/socket.h>
#include <vector>

namespace zl {

// A socket that does not block and is not inherited, and the address of its peer without the port; empty for anything but IP.
struct Accepted {
  int descriptor;
  char address[INET6_ADDRSTRLEN];
};

inline void write_address(const sockaddr_storage& peer, char (&text)[INET6_ADDRSTRLEN]) {
  const void* address = peer.ss_family == AF_INET    ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(peer).sin_addr)
                        : peer.ss_family == AF_INET6 ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr)
                                                     : nullptr;
  if (!address || !inet_ntop(peer.ss_family, address, text, sizeof text)) text[0] = 0;
}

// Accept at most `most`. Returns why no more: 0 where nobody was left, or there were so many.
inline int accept_each(int listening, size_t most, std::vector<Accepted>& accepted) {
  while (accepted.size() < most) {
    sockaddr_storage peer;
    socklen_t size = sizeof peer;
    const int descriptor = accept4(listening, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor >= 0) {
      accepted.push_back({descriptor, {}});
      write_address(peer, accepted.back().address);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return 0;
    } else if (errno != ECONNABORTED && errno != ECONNRESET && errno != EPIPE && errno != EINTR) {  // those went away before
      return errno;
    }
  }
  return 0;
}

}  // namespace zl
