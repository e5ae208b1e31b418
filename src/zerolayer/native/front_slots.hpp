// Attributes of Python objects at the fixed places where __slots__, msgspec and numbers.hpp have put them: by name they would cost as much
// as all that is done with them.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>
#include <structmember.h>

#include <cstdint>
#include <string>

namespace zl {

namespace nb = nanobind;

// Where an attribute of `type` stands. Raises TypeError where it is no member of this kind.
inline Py_ssize_t place_of(nb::handle type, const char* name, int kind) {
  nb::object found = nb::getattr(type, name);
  const auto* descriptor = reinterpret_cast<PyMemberDescrObject*>(found.ptr());
  if (Py_TYPE(found.ptr()) != &PyMemberDescr_Type || descriptor->d_member->type != kind)
    throw nb::type_error((std::string(name) + " is not kept at a place of its own in the type").c_str());
  return descriptor->d_member->offset;
}

// One of a type's __slots__, or a field of a msgspec.Struct.
class Slot {
 public:
  Slot(nb::handle type, const char* name) : at_(place_of(type, name, T_OBJECT_EX)) {}
  // Borrowed; null where nothing was set.
  PyObject* of(PyObject* object) const { return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + at_); }
  void set(PyObject* object, const nb::object& value) const {
    PyObject** at = reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + at_);
    PyObject* before = *at;
    *at = nb::object(value).release().ptr();
    Py_XDECREF(before);
  }

 private:
  Py_ssize_t at_;
};

// A number of a type of numbers.hpp.
class Number {
 public:
  Number(nb::handle type, const char* name) : at_(place_of(type, name, T_LONGLONG)) {}
  int64_t& of(PyObject* object) const { return *reinterpret_cast<int64_t*>(reinterpret_cast<char*>(object) + at_); }

 private:
  Py_ssize_t at_;
};

// -1 with an exception set, for whoever is made by arguments without names.
inline int only_by_place() {
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "the arguments have no names");
  return -1;
}

inline bool is(PyObject* object, const nb::object& type) { return object && Py_TYPE(object) == reinterpret_cast<PyTypeObject*>(type.ptr()); }
inline int64_t number(PyObject* value) { return value && PyLong_Check(value) ? PyLong_AsLongLong(value) : -1; }
inline size_t bytes_in(PyObject* value) { return size_t(PyBytes_GET_SIZE(value)); }

}  // namespace zl
