// Requests of HTTP/2 that came whole, as nearly all do: one HEADERS, at most one DATA, and a head like one before. What else a connection
// may receive, and every limit that is broken, is told in Python.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include "front_slots.hpp"
#include "wire_template.hpp"

namespace zl {

namespace nb = nanobind;

class WholeRequests {
 public:
  // `head` is the type of heads.
  explicit WholeRequests(nb::handle head)
      : type_(nb::borrow(head)), expects_continue_(type_, "expects_continue"), content_length_(type_, "content_length") {}

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

 private:
  // Of a block like one before; else None.
  static nb::object head_of(Bytes block, const nb::dict& heads, const nb::callable& known) {
    const nb::bytes raw(block.data(), block.size());
    PyObject* head = PyDict_GetItemWithError(heads.ptr(), raw.ptr());
    if (head) return nb::borrow(head);
    if (PyErr_Occurred()) throw nb::python_error();
    return known(raw);
  }

  nb::object type_;
  Slot expects_continue_, content_length_;
};

// What an HTTP/2 connection keeps of a stream (wire/http2_stream.py), as the base type of Stream: one is made for every request.
struct StreamObject {
  PyObject_HEAD
  long long id, window, sent_bytes, room, received, pending_bytes;
  PyObject *declared, *state, *body, *incremental, *refused, *pending, *ending;  // none of them leads back here
};

inline int stream_init(PyObject* me, PyObject* arguments, PyObject* named) {
  static const char* kNames[] = {"stream_id", "window", "room", "declared", "state", "received", nullptr};
  StreamObject* self = reinterpret_cast<StreamObject*>(me);
  PyObject *declared, *state;
  long long id, window, room, received = 0;
  if (!PyArg_ParseTupleAndKeywords(arguments, named, "LLLOO|L", const_cast<char**>(kNames), &id, &window, &room, &declared, &state, &received))
    return -1;
  self->id = id;
  self->window = window;
  self->room = room;
  self->received = received;
  Py_XSETREF(self->declared, Py_NewRef(declared));
  Py_XSETREF(self->state, Py_NewRef(state));
  Py_XSETREF(self->body, PyBytes_FromStringAndSize(nullptr, 0));
  for (PyObject** no : {&self->incremental, &self->refused}) Py_XSETREF(*no, Py_NewRef(Py_False));
  for (PyObject** none : {&self->pending, &self->ending}) Py_XSETREF(*none, Py_NewRef(Py_None));
  return 0;
}

inline void stream_dealloc(PyObject* me) {
  StreamObject* self = reinterpret_cast<StreamObject*>(me);
  PyTypeObject* type = Py_TYPE(me);
  for (PyObject** field = &self->declared; field <= &self->ending; field++) Py_CLEAR(*field);
  type->tp_free(me);
  Py_DECREF(type);
}

}  // namespace zl
