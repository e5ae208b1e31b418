// What an HTTP/2 connection keeps of a stream (wire/http2_stream.py), as the base type of Stream: one is made for every request.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include "front_slots.hpp"

namespace zl {

struct StreamObject {
  PyObject_HEAD
  long long id, window, sent_bytes, room, received, pending_bytes;
  PyObject *declared, *state, *body, *incremental, *refused, *pending, *ending;  // none of them leads back here
};

inline PyObject* stream_base = nullptr;  // the type, once there is the module

inline StreamObject* stream(PyObject* self) { return reinterpret_cast<StreamObject*>(self); }

inline void begin_stream(PyObject* me, int64_t id, int64_t window, int64_t room, PyObject* declared, PyObject* state, int64_t received) {
  StreamObject* self = stream(me);
  self->id = id;
  self->window = window;
  self->room = room;
  self->received = received;
  Py_XSETREF(self->declared, Py_NewRef(declared));
  Py_XSETREF(self->state, Py_NewRef(state));
  Py_XSETREF(self->body, PyBytes_FromStringAndSize(nullptr, 0));
  for (PyObject** no : {&self->incremental, &self->refused}) Py_XSETREF(*no, Py_NewRef(Py_False));
  for (PyObject** none : {&self->pending, &self->ending}) Py_XSETREF(*none, Py_NewRef(Py_None));
}

inline int stream_init(PyObject* me, PyObject* arguments, PyObject* named) {
  static const char* kNames[] = {"stream_id", "window", "room", "declared", "state", nullptr};
  PyObject *declared, *state;
  long long id, window, room;
  if (!PyArg_ParseTupleAndKeywords(arguments, named, "LLLOO", const_cast<char**>(kNames), &id, &window, &room, &declared, &state)) return -1;
  begin_stream(me, id, window, room, declared, state, 0);
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
