// Requests of HTTP/2 that came whole, as nearly all do: one HEADERS, at most one DATA, and a head like one before. What else a connection
// may receive, and every limit that is broken, is told in Python.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include "front_slots.hpp"
#include "wire_stream.hpp"
#include "wire_template.hpp"

namespace zl {

namespace nb = nanobind;

class WholeRequests {
 public:
  // `head` is the type of heads, `stream` that of streams, `complete` the state of those whose request is.
  WholeRequests(nb::handle head, nb::type_object stream, nb::object complete)
      : type_(nb::borrow(head)), stream_(stream), complete_(complete), expects_continue_(type_, "expects_continue"),
        content_length_(type_, "content_length") {
    if (!PyType_IsSubtype(stream_type(), reinterpret_cast<PyTypeObject*>(stream_base))) throw nb::type_error("a type of streams is expected");
  }

  // As _native.pyi has it.
  nb::object find(nb::bytes data, nb::dict heads, nb::callable known, uint32_t last_id, int64_t room, size_t body_bytes, size_t most) const {
    nb::list found;
    const Bytes all = view(data);
    for (size_t at = 0; at < all.size();) {
      WholeRequest request;
      if (nb::len(found) == most || !find_whole_request(all, at, request) || request.stream <= last_id) return nb::none();
      const nb::object head = head_of(request.block, heads, known);
      const int64_t size = int64_t(request.body.size());
      if (!is(head.ptr(), type_) || expects_continue_.of(head.ptr()) != Py_False) return nb::none();
      PyObject* declared = content_length_.of(head.ptr());
      if ((declared != Py_None && number(declared) != size) || request.body.size() > body_bytes || (room -= size) < 0) return nb::none();
      found.append(nb::make_tuple(request.stream, head, nb::bytes(request.body.data(), request.body.size())));
      last_id = request.stream;
      at = request.end;
    }
    return found;
  }

  // As _native.pyi has it.
  int64_t open(nb::list found, nb::dict streams, int64_t window, int64_t room) const {
    int64_t taken = 0;
    for (nb::handle each : found) {
      const nb::tuple request = nb::cast<nb::tuple>(each);
      if (request.size() != 3) throw nb::type_error("a stream, a head and a body");
      PyObject *id = PyTuple_GET_ITEM(request.ptr(), 0), *head = PyTuple_GET_ITEM(request.ptr(), 1), *body = PyTuple_GET_ITEM(request.ptr(), 2);
      if (!PyLong_Check(id) || !is(head, type_) || !PyBytes_Check(body)) throw nb::type_error("a stream, a head and a body");
      const nb::object made = nb::steal(stream_type()->tp_alloc(stream_type(), 0));
      if (!made.is_valid()) throw nb::python_error();
      const int64_t size = int64_t(bytes_in(body));
      begin_stream(made.ptr(), number(id), window, room - size, content_length_.of(head), complete_.ptr(), size);
      streams[nb::handle(id)] = made;
      taken += size;
    }
    return taken;
  }

 private:
  PyTypeObject* stream_type() const { return reinterpret_cast<PyTypeObject*>(stream_.ptr()); }

  // Of a block like one before; else None.
  static nb::object head_of(Bytes block, const nb::dict& heads, const nb::callable& known) {
    const nb::bytes raw(block.data(), block.size());
    PyObject* head = PyDict_GetItemWithError(heads.ptr(), raw.ptr());
    if (head) return nb::borrow(head);
    if (PyErr_Occurred()) throw nb::python_error();
    return known(raw);
  }

  nb::object type_, stream_, complete_;
  Slot expects_continue_, content_length_;
};

}  // namespace zl
