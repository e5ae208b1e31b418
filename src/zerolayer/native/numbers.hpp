// Base types for Python classes whose whole numbers change with every token: C++ reads and writes them in place, where an attribute of
// Python's own would be a new object each time. To Python they are plain attributes, and 0 at first.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <structmember.h>

#include <cstdint>
#include <string>

#include "plain_type.hpp"

namespace zl {

// A type in `module`; its members are at consecutive places from 0 on and end with an empty one, and must live as long as the interpreter.
template <size_t count>
void add_numbers(nanobind::module_& module, const char* name, PyMemberDef (&members)[count]) {
  const std::string whole = nanobind::cast<std::string>(module.attr("__name__")) + "." + name;
  PyType_Slot slots[] = {{Py_tp_members, members}, {0, nullptr}};
  PyType_Spec spec{whole.c_str(), int(sizeof(PyObject) + (count - 1) * sizeof(int64_t)), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  module.attr(name) = plain_type(spec);
}

constexpr PyMemberDef number_at(const char* name, size_t place) {
  static_assert(sizeof(long long) == sizeof(int64_t));
  return {name, T_LONGLONG, Py_ssize_t(sizeof(PyObject) + place * sizeof(int64_t)), 0, nullptr};
}

}  // namespace zl
