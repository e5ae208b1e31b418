// The Python face of the accounts that every request writes into: zerolayer.observe._native. Plain types, as their fields are read from
// Python for every token; nanobind makes the module.
#include <nanobind/nanobind.h>
#include <structmember.h>

#include "observe_objects.hpp"
#include "plain_type.hpp"

namespace nb = nanobind;

namespace {

using zl::ComputeObject, zl::GlueMeterObject, zl::SharedStepsObject, zl::StageClockObject;

PyTypeObject* shared_steps_type;  // of this module, for as long as the process lives

template <class Object>
Object* of(PyObject* self) {
  return reinterpret_cast<Object*>(self);
}

// The whole numbers that a call was given; false with an exception set where there are not so many.
template <size_t kCount>
bool numbers(PyObject* const* given, Py_ssize_t count, int64_t (&out)[kCount]) {
  if (count != Py_ssize_t(kCount)) {
    PyErr_Format(PyExc_TypeError, "%zu whole numbers are expected", kCount);
    return false;
  }
  for (size_t i = 0; i < kCount; i++) {
    out[i] = PyLong_AsLongLong(given[i]);
    if (out[i] == -1 && PyErr_Occurred()) return false;
  }
  return true;
}

PyObject* plain_new(PyTypeObject* type, PyObject*, PyObject*) { return type->tp_alloc(type, 0); }

void plain_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

// SharedSteps

PyObject* shared_step(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  int64_t at[3];
  if (!numbers(given, count, at)) return nullptr;
  of<SharedStepsObject>(self)->sums.step(at[0], at[1], at[2]);
  Py_RETURN_NONE;
}

// StageClock

int clock_init(PyObject* self, PyObject* arguments, PyObject* named) {
  static const char* kNames[] = {"first_byte_ns", nullptr};
  long long first_byte_ns;
  if (!PyArg_ParseTupleAndKeywords(arguments, named, "L", const_cast<char**>(kNames), &first_byte_ns)) return -1;
  of<StageClockObject>(self)->sums.begin(first_byte_ns);
  return 0;
}

void clock_dealloc(PyObject* self) {
  Py_CLEAR(of<StageClockObject>(self)->shared);
  plain_dealloc(self);
}

PyObject* clock_ride(PyObject* self, PyObject* steps) {
  if (!PyObject_TypeCheck(steps, shared_steps_type)) return PyErr_Format(PyExc_TypeError, "shared steps are expected");
  if (of<StageClockObject>(self)->sums.ride(&of<SharedStepsObject>(steps)->sums)) {
    Py_INCREF(steps);
    Py_XSETREF(of<StageClockObject>(self)->shared, steps);
  }
  Py_RETURN_NONE;
}

PyObject* clock_alight(PyObject* self, PyObject*) {
  if (of<StageClockObject>(self)->sums.alight()) Py_CLEAR(of<StageClockObject>(self)->shared);
  Py_RETURN_NONE;
}

PyObject* clock_settle(PyObject* self, PyObject*) {
  of<StageClockObject>(self)->sums.settle();
  Py_RETURN_NONE;
}

PyObject* clock_mark(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  int64_t at[2];
  if (!numbers(given, count, at)) return nullptr;
  if (at[0] < 0 || at[0] >= zl::kStages) return PyErr_Format(PyExc_IndexError, "there is no such stage");
  of<StageClockObject>(self)->sums.mark(int(at[0]), at[1]);
  Py_RETURN_NONE;
}

PyObject* clock_step(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  int64_t at[2];
  if (!numbers(given, count, at)) return nullptr;
  of<StageClockObject>(self)->sums.step(at[0], at[1]);
  Py_RETURN_NONE;
}

PyObject* clock_first_token(PyObject* self, PyObject*) {
  of<StageClockObject>(self)->sums.computing = zl::kDecode;
  Py_RETURN_NONE;
}

PyObject* clock_elapsed(PyObject* self, void*) {
  const zl::StageSums& sums = of<StageClockObject>(self)->sums;
  return PyLong_FromLongLong(sums.last_ns - sums.started_ns);
}

PyObject* clock_spent(PyObject* self, PyObject*) {
  PyObject* all = PyTuple_New(zl::kStages);
  if (!all) return nullptr;
  for (int stage = 0; stage < zl::kStages; stage++) {
    PyObject* spent = PyLong_FromLongLong(of<StageClockObject>(self)->sums.spent_ns[stage]);
    if (!spent) {
      Py_DECREF(all);
      return nullptr;
    }
    PyTuple_SET_ITEM(all, stage, spent);
  }
  return all;
}

// ComputeSums

PyObject* compute_rest(PyObject* self, PyObject* now) {
  int64_t at[1];
  if (!numbers(&now, 1, at)) return nullptr;
  of<ComputeObject>(self)->sums.rest(at[0]);
  Py_RETURN_NONE;
}

PyObject* compute_rows(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  int64_t at[3];
  if (!numbers(given, count, at)) return nullptr;
  zl::ComputeSums& sums = of<ComputeObject>(self)->sums;
  const zl::ComputeSums::Charge charge = sums.step(at[0], at[1], at[2], 0.0);
  sums.idle_ns += charge.chunk_ns;
  return PyLong_FromLongLong(charge.row_ns);
}

PyObject* compute_split(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  int64_t at[3];
  if (count != 4) return PyErr_Format(PyExc_TypeError, "three whole numbers and a share are expected");
  const double share = PyFloat_AsDouble(given[3]);
  if ((share == -1.0 && PyErr_Occurred()) || !numbers(given, 3, at)) return nullptr;
  const zl::ComputeSums::Charge charge = of<ComputeObject>(self)->sums.step(at[0], at[1], at[2], share);
  return Py_BuildValue("LL", static_cast<long long>(charge.row_ns), static_cast<long long>(charge.chunk_ns));
}

PyObject* compute_take(PyObject* self, PyObject*) {
  zl::ComputeSums& sums = of<ComputeObject>(self)->sums;
  PyObject* taken = Py_BuildValue("LL", static_cast<long long>(sums.row_ns), static_cast<long long>(sums.idle_ns));
  if (taken) sums.row_ns = sums.idle_ns = 0;
  return taken;
}

// GlueMeter

PyObject* glue_enter(PyObject* self, PyObject* now) {
  int64_t at[1];
  if (!numbers(&now, 1, at)) return nullptr;
  of<GlueMeterObject>(self)->sums.enter(at[0]);
  Py_RETURN_NONE;
}

PyObject* glue_leave(PyObject* self, PyObject* now) {
  int64_t at[1];
  if (!numbers(&now, 1, at)) return nullptr;
  of<GlueMeterObject>(self)->sums.leave(at[0]);
  Py_RETURN_NONE;
}

PyObject* glue_step(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  int64_t at[2];
  if (!numbers(given, count, at)) return nullptr;
  of<GlueMeterObject>(self)->sums.step(at[0], at[1]);
  Py_RETURN_NONE;
}

PyObject* glue_busy(PyObject* self, PyObject* now) {
  int64_t at[1];
  if (!numbers(&now, 1, at)) return nullptr;
  return PyLong_FromLongLong(of<GlueMeterObject>(self)->sums.busy_ns(at[0]));
}

template <class Function>
PyCFunction method(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

constexpr Py_ssize_t at(size_t offset) { return Py_ssize_t(offset); }

PyMethodDef shared_methods[] = {{"step", method(shared_step), METH_FASTCALL, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyMemberDef shared_members[] = {
    {"last_ns", T_LONGLONG, at(offsetof(SharedStepsObject, sums.last_ns)), READONLY, nullptr},
    {"wait_ns", T_LONGLONG, at(offsetof(SharedStepsObject, sums.wait_ns)), READONLY, nullptr},
    {"arithmetic_ns", T_LONGLONG, at(offsetof(SharedStepsObject, sums.arithmetic_ns)), READONLY, nullptr},
    {"core_ns", T_LONGLONG, at(offsetof(SharedStepsObject, sums.core_ns)), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyType_Slot shared_slots[] = {{Py_tp_new, reinterpret_cast<void*>(plain_new)},
                              {Py_tp_dealloc, reinterpret_cast<void*>(plain_dealloc)},
                              {Py_tp_methods, shared_methods},
                              {Py_tp_members, shared_members},
                              {0, nullptr}};
PyType_Spec shared_spec = {"zerolayer.observe._native.SharedSteps", sizeof(SharedStepsObject), 0, Py_TPFLAGS_DEFAULT, shared_slots};

PyMethodDef clock_methods[] = {{"ride", clock_ride, METH_O, nullptr},
                               {"alight", clock_alight, METH_NOARGS, nullptr},
                               {"settle", clock_settle, METH_NOARGS, nullptr},
                               {"mark", method(clock_mark), METH_FASTCALL, nullptr},
                               {"step", method(clock_step), METH_FASTCALL, nullptr},
                               {"first_token", clock_first_token, METH_NOARGS, nullptr},
                               {"spent_ns", clock_spent, METH_NOARGS, nullptr},
                               {nullptr, nullptr, 0, nullptr}};
PyMemberDef clock_members[] = {{"started_ns", T_LONGLONG, at(offsetof(StageClockObject, sums.started_ns)), READONLY, nullptr},
                               {"last_ns", T_LONGLONG, at(offsetof(StageClockObject, sums.last_ns)), READONLY, nullptr},
                               {"computes", T_INT, at(offsetof(StageClockObject, sums.computing)), READONLY, nullptr},
                               {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef clock_computed[] = {{"elapsed_ns", clock_elapsed, nullptr, nullptr, nullptr}, {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot clock_slots[] = {{Py_tp_new, reinterpret_cast<void*>(plain_new)},
                             {Py_tp_init, reinterpret_cast<void*>(clock_init)},
                             {Py_tp_dealloc, reinterpret_cast<void*>(clock_dealloc)},
                             {Py_tp_methods, clock_methods},
                             {Py_tp_members, clock_members},
                             {Py_tp_getset, clock_computed},
                             {0, nullptr}};
PyType_Spec clock_spec = {"zerolayer.observe._native.StageSums", sizeof(StageClockObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                          clock_slots};

PyMethodDef compute_methods[] = {{"rest", compute_rest, METH_O, nullptr},
                                 {"rows_ns", method(compute_rows), METH_FASTCALL, nullptr},
                                 {"split_ns", method(compute_split), METH_FASTCALL, nullptr},
                                 {"take_ns", compute_take, METH_NOARGS, nullptr},
                                 {nullptr, nullptr, 0, nullptr}};
PyMemberDef compute_members[] = {{"cores", T_LONGLONG, at(offsetof(ComputeObject, sums.cores)), 0, nullptr},
                                 {"until_ns", T_LONGLONG, at(offsetof(ComputeObject, sums.until_ns)), 0, nullptr},
                                 {nullptr, 0, 0, 0, nullptr}};
PyType_Slot compute_slots[] = {{Py_tp_new, reinterpret_cast<void*>(plain_new)},
                               {Py_tp_dealloc, reinterpret_cast<void*>(plain_dealloc)},
                               {Py_tp_methods, compute_methods},
                               {Py_tp_members, compute_members},
                               {0, nullptr}};
PyType_Spec compute_spec = {"zerolayer.observe._native.ComputeSums", sizeof(ComputeObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                            compute_slots};

PyMethodDef glue_methods[] = {{"enter", glue_enter, METH_O, nullptr},
                              {"leave", glue_leave, METH_O, nullptr},
                              {"step", method(glue_step), METH_FASTCALL, nullptr},
                              {"busy_ns", glue_busy, METH_O, nullptr},
                              {nullptr, nullptr, 0, nullptr}};
PyMemberDef glue_members[] = {{"in_flight", T_LONGLONG, at(offsetof(GlueMeterObject, sums.in_flight)), READONLY, nullptr},
                              {"arithmetic_ns", T_LONGLONG, at(offsetof(GlueMeterObject, sums.arithmetic_ns)), READONLY, nullptr},
                              {nullptr, 0, 0, 0, nullptr}};
PyType_Slot glue_slots[] = {{Py_tp_new, reinterpret_cast<void*>(plain_new)},
                            {Py_tp_dealloc, reinterpret_cast<void*>(plain_dealloc)},
                            {Py_tp_methods, glue_methods},
                            {Py_tp_members, glue_members},
                            {0, nullptr}};
PyType_Spec glue_spec = {"zerolayer.observe._native.BusySums", sizeof(GlueMeterObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, glue_slots};

}  // namespace

NB_MODULE(_native, m) {
  nb::object shared_steps = zl::plain_type(shared_spec);
  shared_steps_type = reinterpret_cast<PyTypeObject*>(shared_steps.ptr());
  m.attr("SharedSteps") = shared_steps;
  m.attr("StageSums") = zl::plain_type(clock_spec);
  m.attr("ComputeSums") = zl::plain_type(compute_spec);
  m.attr("BusySums") = zl::plain_type(glue_spec);
}
