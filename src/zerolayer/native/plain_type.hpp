// A Python type from its specification, for fields and methods that are reached too often for nanobind's own classes.
#pragma once

#include <nanobind/nanobind.h>

namespace zl {

inline nanobind::object plain_type(PyType_Spec& spec) {
  nanobind::object type = nanobind::steal(PyType_FromSpec(&spec));
  if (!type.is_valid()) throw nanobind::python_error();
  return type;
}

}  // namespace zl
