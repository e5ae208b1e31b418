// What a clock that is given as a function of Python's says. Python's own clocks are read without Python, as every request asks several times.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include <cmath>
#include <cstdint>
#include <ctime>

namespace zl {

namespace nb = nanobind;

// time.monotonic_ns and time.time, for as long as the process lives.
struct OwnClocks {
  nb::object monotonic_ns = nb::module_::import_("time").attr("monotonic_ns"), time = nb::module_::import_("time").attr("time");
};

inline const OwnClocks* own_clocks = nullptr;

// False with an exception set.
inline bool monotonic_ns(PyObject* clock, int64_t& now) {
  if (clock == own_clocks->monotonic_ns.ptr()) {
    timespec read;
    clock_gettime(CLOCK_MONOTONIC, &read);
    now = int64_t(read.tv_sec) * 1'000'000'000 + read.tv_nsec;
    return true;
  }
  PyObject* told = PyObject_CallNoArgs(clock);
  if (!told) return false;
  now = PyLong_AsLongLong(told);
  Py_DECREF(told);
  return !(now == -1 && PyErr_Occurred());
}

// Unix time in microseconds, of a clock of seconds. False with an exception set.
inline bool unix_us(PyObject* clock, uint64_t& now) {
  if (clock == own_clocks->time.ptr()) {
    timespec read;
    clock_gettime(CLOCK_REALTIME, &read);
    now = uint64_t(read.tv_sec) * 1'000'000 + uint64_t(read.tv_nsec) / 1'000;
    return true;
  }
  PyObject* told = clock ? PyObject_CallNoArgs(clock) : PyErr_Format(PyExc_TypeError, "there is no clock");
  if (!told) return false;
  const double seconds = PyFloat_AsDouble(told);
  Py_DECREF(told);
  if (seconds == -1.0 && PyErr_Occurred()) return false;
  if (!(seconds >= 0 && seconds < 1e12)) {
    PyErr_SetString(PyExc_ValueError, "the clock shows no time");
    return false;
  }
  now = uint64_t(std::llrint(seconds * 1e6));
  return true;
}

}  // namespace zl
