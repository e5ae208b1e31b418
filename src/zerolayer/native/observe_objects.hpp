// The accounts of observe_stages.hpp as Python's objects: what zerolayer.observe._native makes, and zerolayer.front._native writes into.
#pragma once

#include <Python.h>

#include "observe_stages.hpp"

namespace zl {

struct SharedStepsObject {
  PyObject_HEAD
  StepSums sums;
};

struct StageClockObject {
  PyObject_HEAD
  StageSums sums;
  PyObject* shared;  // what ``sums.shared`` is in, while it is
};

struct ComputeObject {
  PyObject_HEAD
  ComputeSums sums;
};

struct GlueMeterObject {
  PyObject_HEAD
  BusySums sums;
};

}  // namespace zl
