// The headers that every reply carries, put together: constant bytes around the load, the time and the request's name. What they are is
// front/common_headers.py's to say. Included by front_module.cpp only, as it knows Python.
#pragma once

#include <Python.h>
#include <structmember.h>

#include <cstdint>

#include "front_clocks.hpp"
#include "wire_bytes.hpp"

namespace zl {

struct CommonHeadersObject {
  PyObject_HEAD
  // For Python; from the first to the last one they are visited and let go of in their order.
  PyObject *wall_s, *load, *told_load, *start, *between, *after;
  long long name_bytes;  // of the names that `between` and `after` are for
};

inline CommonHeadersObject* common_headers(PyObject* self) { return reinterpret_cast<CommonHeadersObject*>(self); }

inline Bytes bytes_of(PyObject* object) { return {PyBytes_AS_STRING(object), size_t(PyBytes_GET_SIZE(object))}; }

// `before`, Unix time with six decimals, `between`, `name`, `after`; a new reference.
inline PyObject* stamped(Bytes before, uint64_t time_us, Bytes between, Bytes name, Bytes after) {
  const Decimal seconds(time_us / 1'000'000), padded(1'000'000 + time_us % 1'000'000);
  const Bytes whole = seconds, part = Bytes(padded).substr(1);
  const size_t size = before.size() + whole.size() + 1 + part.size() + between.size() + name.size() + after.size();
  PyObject* made = PyBytes_FromStringAndSize(nullptr, Py_ssize_t(size));
  if (!made) return nullptr;
  char* at = PyBytes_AS_STRING(made);
  for (const Bytes piece : {before, whole, Bytes("."), part, between, name, after}) at = put(at, piece);
  return made;
}

// Make `told_load` what the load is now, with the help of Python where it has changed. False with an exception set.
inline bool tell_load(CommonHeadersObject* self) {
  PyObject* load = self->load ? PyObject_CallNoArgs(self->load) : PyErr_Format(PyExc_TypeError, "there is no load to tell");
  if (!load) return false;
  bool told = true;
  if (!PyBytes_Check(load)) {
    PyErr_SetString(PyExc_TypeError, "a load is bytes");
    told = false;
  } else if (load != self->told_load && (!self->told_load || bytes_of(load) != bytes_of(self->told_load))) {
    PyObject* done = PyObject_CallMethod(reinterpret_cast<PyObject*>(self), "_tell", "O", load);
    told = done != nullptr;
    Py_XDECREF(done);
  }
  Py_DECREF(load);
  return told;
}

// The headers of the reply to the request that is called `name`; a new reference, or null with an exception set.
inline PyObject* common_of(PyObject* me, PyObject* name) {
  CommonHeadersObject* self = common_headers(me);
  if (!PyBytes_Check(name)) return PyErr_Format(PyExc_TypeError, "a request's name is bytes");
  if (!tell_load(self)) return nullptr;
  if (PyBytes_GET_SIZE(name) != self->name_bytes) {
    PyObject* fitted = PyObject_CallMethod(me, "_fit", "n", PyBytes_GET_SIZE(name));
    if (!fitted) return nullptr;
    Py_DECREF(fitted);
  }
  uint64_t now_us;
  if (!unix_us(self->wall_s, now_us)) return nullptr;
  for (PyObject* piece : {self->start, self->between, self->after})
    if (!piece || !PyBytes_Check(piece)) return PyErr_Format(PyExc_TypeError, "headers are bytes");
  return stamped(bytes_of(self->start), now_us, bytes_of(self->between), bytes_of(name), bytes_of(self->after));
}

inline int common_traverse(PyObject* me, visitproc visit, void* arg) {
  CommonHeadersObject* self = common_headers(me);
  for (PyObject** field = &self->wall_s; field <= &self->after; field++) Py_VISIT(*field);
  Py_VISIT(Py_TYPE(me));
  return 0;
}

inline int common_clear(PyObject* me) {
  CommonHeadersObject* self = common_headers(me);
  for (PyObject** field = &self->wall_s; field <= &self->after; field++) Py_CLEAR(*field);
  return 0;
}

inline void common_dealloc(PyObject* me) {
  PyTypeObject* type = Py_TYPE(me);
  PyObject_GC_UnTrack(me);
  common_clear(me);
  type->tp_free(me);
  Py_DECREF(type);
}

}  // namespace zl
