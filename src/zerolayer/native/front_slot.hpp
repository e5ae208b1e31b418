// An attribute that stands at a fixed place of its object: read there, since by name it would cost as much as what is done with it.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>
#include <structmember.h>

#include <string>

namespace zl {

namespace nb = nanobind;

// One of a type's __slots__, or a field of a msgspec.Struct.
class Slot {
 public:
  Slot(nb::handle type, const char* name) {
    nb::object found = nb::getattr(type, name);
    if (Py_TYPE(found.ptr()) != &PyMemberDescr_Type || descriptor(found)->d_member->type != T_OBJECT_EX)
      throw nb::type_error((std::string(name) + " is not one of the type's __slots__").c_str());
    at_ = descriptor(found)->d_member->offset;
  }
  // Borrowed; null where nothing was set.
  PyObject* of(PyObject* object) const { return *place(object); }
  void set(PyObject* object, nb::object value) const {
    PyObject* before = *place(object);
    *place(object) = value.release().ptr();
    Py_XDECREF(before);
  }

 private:
  static PyMemberDescrObject* descriptor(nb::handle found) { return reinterpret_cast<PyMemberDescrObject*>(found.ptr()); }
  PyObject** place(PyObject* object) const { return reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + at_); }
  Py_ssize_t at_;
};

}  // namespace zl
