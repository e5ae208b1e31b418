// Sockets of clients that speak in clear: an epoll(7) of their own. Whatever has come is read and handed on in one call, and what is said to
// that is sent in another one. Included by front_module.cpp only, as it knows Python.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "front_accepts.hpp"
#include "front_ring.hpp"
#include "front_slots.hpp"

namespace zl {

// The bytes that the kernel took at once, 0 where it has no room; or what is wrong, as a negative number of an error.
inline int64_t send_now(int descriptor, const char* data, size_t bytes) {
  ssize_t sent;
  do sent = ::send(descriptor, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent >= 0) return sent;
  return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -int64_t(errno);
}

// Of one loop. A transport is whoever has `receive`, a function or None, `piece` and `descriptor`, and `put_back`, `ended`, `failed`,
// `writable` and `broken`.
class Sockets {
 public:
  explicit Sockets(nb::type_object transport) : receive_(transport, "receive"), piece_(transport, "piece"), descriptor_(transport, "descriptor"), buffer_(std::make_unique_for_overwrite<char[]>(kBytes)), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (epoll_ < 0) fail();
  }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;
  ~Sockets() { close(); }

  int fileno() const { return epoll_; }
  void close() {
    if (epoll_ >= 0) ::close(epoll_);
    epoll_ = -1;
  }

  // Offers the kernel the piece of each, without the lock from `many` ones on. It keeps its piece where not all of that was taken: (its
  // place, the bytes that were).
  nb::list send(nb::list transports, size_t many) {
    sends_.clear();
    for (size_t place = 0; place < transports.size(); place++) {
      PyObject *transport = transports[place].ptr(), *piece = piece_.of(transport);
      if (bytes_in(piece)) sends_.push_back({int(number(descriptor_.of(transport))), PyBytes_AS_STRING(piece), bytes_in(piece), 0, place});
    }
    if (sends_.size() < many) {
      ring_.send_each(sends_.data(), sends_.size());
    } else {
      nb::gil_scoped_release others;
      ring_.send_each(sends_.data(), sends_.size());
    }
    nb::list left;
    for (const Piece& each : sends_) {
      if (each.sent < each.bytes) left.append(nb::make_tuple(each.place, each.sent));
      else piece_.set(transports[each.place].ptr(), nothing_);
    }
    return left;
  }

  void add(int descriptor) { control(EPOLL_CTL_ADD, descriptor, EPOLLIN); }

  // Accepts at most `most` and watches the first `room` of them: descriptors, addresses and what these have said already; and why there are
  // no more, 0 where nobody was left. Who cannot be watched is closed.
  nb::tuple accept(int listening, size_t most, size_t room) {
    accepted_.clear();
    int error = accept_each(listening, most, accepted_);
    nb::list found;
    for (const Accepted& each : accepted_) {
      const bool watched = found.size() < room;
      nb::object said = nothing_;
      if (watched) {
        const ssize_t bytes = recv(each.descriptor, buffer_.get(), kFirstBytes, MSG_DONTWAIT);  // what is wrong is told by the look
        if (bytes > 0) said = nb::steal(PyBytes_FromStringAndSize(buffer_.get(), bytes));
        if (!said.is_valid()) throw nb::python_error();
      }
      if (watched && !controls(EPOLL_CTL_ADD, each.descriptor, EPOLLIN)) {
        error = errno;
        ::close(each.descriptor);
      } else {
        found.append(nb::make_tuple(each.descriptor, address_of(each), said));
      }
    }
    return nb::make_tuple(found, error);
  }
  // What was watched so and is now to be watched so. A socket of which nothing is wanted is not watched: the kernel would tell of its end
  // again and again.
  void watch(int descriptor, bool was, bool reads, bool writes) {
    const uint32_t events = (reads ? EPOLLIN : 0u) | (writes ? EPOLLOUT : 0u);
    if (was || events) control(!events ? EPOLL_CTL_DEL : was ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, descriptor, events);
  }

  // Reads where there is something and hands it to those in `transports`, by descriptor. Nobody is taken from there meanwhile.
  //
  // First it reads, then it hands on: a system call between each two requests would drive what handles them out of the nearest caches.
  void look(nb::dict transports) {
    std::array<epoll_event, kMost> events;
    std::array<Came, kMost> came;
    const size_t found = size_t(std::max(0, epoll_wait(epoll_, events.data(), int(events.size()), 0)));
    for (size_t first = 0, last = 0; first < found; first = last) {
      for (size_t bytes = 0; last < found && bytes < kBytes; last++) bytes += read(transports, events[last], came[last]);
      for (size_t each = first; each < last; each++) hand_on(came[each]);
    }
  }

 private:
  static constexpr size_t kMost = 64;  // in one turn of the loop, which has others to look after
  static constexpr size_t kBytes = 262144, kFirstBytes = 16384;

  [[noreturn]] static void fail() {
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
  }

  bool controls(int operation, int descriptor, uint32_t events) const {
    epoll_event event{};
    event.events = events;
    event.data.fd = descriptor;
    return epoll_ctl(epoll_, operation, descriptor, &event) == 0;
  }

  void control(int operation, int descriptor, uint32_t events) const {
    if (!controls(operation, descriptor, events)) fail();
  }

  // Clients often come from few addresses, and mostly from the last one's.
  const nb::object& address_of(const Accepted& peer) {
    if (!address_.is_valid() || std::strcmp(peer.address, last_address_) != 0) {
      address_ = nb::steal(PyUnicode_FromString(peer.address));
      if (!address_.is_valid()) throw nb::python_error();
      std::memcpy(last_address_, peer.address, sizeof last_address_);
    }
    return address_;
  }

  static nb::object of(nb::dict transports, int descriptor) {
    const nb::object key = nb::steal(PyLong_FromLong(descriptor));
    if (!key.is_valid()) throw nb::python_error();
    PyObject* found = PyDict_GetItemWithError(transports.ptr(), key.ptr());
    if (!found && PyErr_Occurred()) throw nb::python_error();
    return nb::borrow(found);
  }

  // What came to one socket.
  struct Came {
    nb::object transport, data;  // `data`: where there was something to read
    uint32_t what = 0;
    int error = 0;
    bool ended = false;
  };

  // How many bytes it were.
  size_t read(nb::dict transports, const epoll_event& event, Came& came) {
    const int descriptor = event.data.fd;
    came.transport = of(transports, descriptor);
    if (!came.transport.is_valid()) {  // nobody's: its connection failed while it began
      controls(EPOLL_CTL_DEL, descriptor, 0);
      return 0;
    }
    came.what = event.events;
    if (!(came.what & ~uint32_t(EPOLLOUT)) || !reads(came)) return 0;
    const ssize_t bytes = recv(descriptor, buffer_.get(), kBytes, MSG_DONTWAIT);
    if (bytes > 0) {
      came.data = nb::steal(PyBytes_FromStringAndSize(buffer_.get(), bytes));
      if (!came.data.is_valid()) throw nb::python_error();
      return size_t(bytes);
    }
    came.ended = bytes == 0;
    if (bytes < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) came.error = errno;
    return 0;
  }

  bool reads(const Came& came) const {
    PyObject* receive = receive_.of(came.transport.ptr());
    return receive && receive != Py_None;
  }

  void hand_on(Came& came) {
    const nb::object transport = std::move(came.transport), data = std::move(came.data);
    if (!transport.is_valid() || (came.what & EPOLLOUT && !call(transport, writable_)) || !(came.what & ~uint32_t(EPOLLOUT))) return;
    const nb::object receive = nb::borrow(receive_.of(transport.ptr()));
    const bool reads = receive.is_valid() && !receive.is_none();
    if (data.is_valid()) {
      if (reads) mend(transport, PyObject_CallOneArg(receive.ptr(), data.ptr()));
      else mend(transport, PyObject_CallMethodOneArg(transport.ptr(), put_back_.ptr(), data.ptr()));
    } else if (!reads) {  // it writes only, and learns here that nobody reads that
      if (came.what & (EPOLLERR | EPOLLHUP)) tell(transport, failed_, PyLong_FromLong(EPIPE));
    } else if (came.ended) {
      call(transport, ended_);
    } else if (came.error) {
      tell(transport, failed_, PyLong_FromLong(came.error));
    }
  }

  bool call(const nb::object& transport, const nb::object& name) const {
    return mend(transport, PyObject_CallMethodNoArgs(transport.ptr(), name.ptr()));
  }

  void tell(const nb::object& transport, const nb::object& name, PyObject* given) const {
    const nb::object value = nb::steal(given);
    if (!value.is_valid()) throw nb::python_error();
    mend(transport, PyObject_CallMethodOneArg(transport.ptr(), name.ptr(), value.ptr()));
  }

  // A connection's defect costs that connection, and none of those that are read after it.
  bool mend(const nb::object& transport, PyObject* result) const {
    if (result) {
      Py_DECREF(result);
      return true;
    }
    if (!PyErr_ExceptionMatches(PyExc_Exception)) throw nb::python_error();
    nb::python_error error;
    const nb::object told = nb::steal(PyObject_CallMethodOneArg(transport.ptr(), broken_.ptr(), error.value().ptr()));
    if (!told.is_valid()) throw nb::python_error();
    return false;
  }

  static nb::object name(const char* text) { return nb::steal(PyUnicode_InternFromString(text)); }

  const Slot receive_, piece_, descriptor_;
  const nb::object ended_ = name("ended"), failed_ = name("failed"), writable_ = name("writable"), broken_ = name("broken"),
                   put_back_ = name("put_back");
  const nb::object nothing_ = nb::bytes("", 0);
  const std::unique_ptr<char[]> buffer_;
  std::vector<Piece> sends_;
  std::vector<Accepted> accepted_;
  char last_address_[INET6_ADDRSTRLEN] = "";
  nb::object address_;  // the same, for Python
  int epoll_;
  Ring ring_;
};

}  // namespace zl
