// What every exchange has and does, whatever its reply: its fields, its name, its account of time. The rest of it is front/exchange.py.
// Included by front_module.cpp only, as it knows Python: a plain type, whose fields cost those who read them in Python no more than slots.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>
#include <structmember.h>

#include <charconv>
#include <cstdint>
#include <cstring>

#include "front_slot.hpp"
#include "observe_objects.hpp"
#include "wire_values.hpp"

namespace zl {

namespace nb = nanobind;

// Names for requests that bring none: a prefix, then a number in at least eight hexadecimal digits.
struct RequestIdsObject {
  PyObject_HEAD
  PyObject* prefix;  // bytes
  uint64_t count;
};

struct ExchangeObject {
  PyObject_HEAD
  // Read and written by Python, in the order of kFields.
  PyObject *connection, *site, *head, *id, *stages, *action, *intake, *on_gone, *receipt, *identity, *dialect, *explain, *more_headers, *allow,
      *body, *media, *expired, *streaming, *tells_when, *deadline_ns;
  char left, parked;
};

// What all exchanges share, told once by front/exchange.py.
struct ExchangeKind {
  explicit ExchangeKind(nb::dict given)
      : clock_type(given["StageClock"]), glue_type(given["GlueMeter"]), ids_type(given["RequestIds"]), unreadable(given["unreadable"]),
        identity(given["identity"]), dialect(given["dialect"]), media(given["media"]), never(given["never"]), site(given["Site"]),
        clock_ns(site, "clock_ns"), ids(site, "ids"), glue(site, "glue"), head(given["Head"]), values(head, "values"), method(head, "method"),
        keep_alive(head, "keep_alive"), dialects(given["Dialect"]), id_header(dialects, "id_header") {}
  const nb::object clock_type, glue_type, ids_type, unreadable, identity, dialect, media, never, site;
  const Slot clock_ns, ids, glue;
  const nb::object head;
  const Slot values, method, keep_alive;
  const nb::object dialects;
  const Slot id_header;
  const nb::object common = name("common"), draining = name("draining"), of = name("of"), reply = name("reply"), file = name("_file");
  const nb::object kept = name("keep_alive"), spelled = name("spelled"), kept_and_head_only = nb::make_tuple(kept, name("head_only"));
  const nb::object head_method = name("HEAD"), id_field = bytes("x-request-id"), origin_field = bytes("origin");

  static nb::object name(const char* text) { return nb::steal(PyUnicode_InternFromString(text)); }
  static nb::object bytes(const char* text) { return nb::steal(PyBytes_FromString(text)); }
  static bool is(PyObject* object, const nb::object& type) { return Py_TYPE(object) == reinterpret_cast<PyTypeObject*>(type.ptr()); }
};

inline ExchangeKind* exchange_kind = nullptr;

constexpr size_t kLongestName = 128;

// Whether it has begun, and is not about to vanish; else an exception is set.
inline bool lives(const ExchangeObject* self) {
  if (self->site && self->stages && self->more_headers && self->dialect) return true;
  PyErr_SetString(PyExc_TypeError, "an exchange begins with its head");
  return false;
}

inline ExchangeObject* exchange(PyObject* self) { return reinterpret_cast<ExchangeObject*>(self); }

// A new reference; null with an exception set.
inline PyObject* numbered_id(RequestIdsObject* ids) {
  if (!ids->prefix) return PyErr_Format(PyExc_TypeError, "names begin with a prefix");
  char digits[16];
  const size_t size = size_t(std::to_chars(digits, digits + sizeof digits, ++ids->count, 16).ptr - digits), zeros = size < 8 ? 8 - size : 0;
  const size_t before = size_t(PyBytes_GET_SIZE(ids->prefix));
  PyObject* made = PyBytes_FromStringAndSize(nullptr, Py_ssize_t(before + zeros + size));
  if (!made) return nullptr;
  char* at = PyBytes_AS_STRING(made);
  std::memcpy(at, PyBytes_AS_STRING(ids->prefix), before);
  std::memset(at + before, '0', zeros);
  std::memcpy(at + before + zeros, digits, size);
  return made;
}

// The client's own name for the request, where it is one; else a new one.
inline PyObject* id_of(RequestIdsObject* ids, PyObject* values) {
  if (values && PyDict_Check(values)) {
    PyObject* given = PyDict_GetItemWithError(values, exchange_kind->id_field.ptr());
    if (given && PyBytes_Check(given)) {
      const Bytes name(PyBytes_AS_STRING(given), size_t(PyBytes_GET_SIZE(given)));
      if (!name.empty() && name.size() <= kLongestName && is_ascii_visible(name)) return Py_NewRef(given);
    } else if (!given && PyErr_Occurred()) {
      return nullptr;
    }
  }
  return numbered_id(ids);
}

// False with an exception set.
inline bool now_ns(ExchangeObject* self, int64_t& now) {
  if (!lives(self)) return false;
  PyObject* told = PyObject_CallNoArgs(exchange_kind->clock_ns.of(self->site));
  if (!told) return false;
  now = PyLong_AsLongLong(told);
  Py_DECREF(told);
  return !(now == -1 && PyErr_Occurred());
}

inline StageSums& sums(ExchangeObject* self) { return reinterpret_cast<StageClockObject*>(self->stages)->sums; }
inline BusySums& glue(ExchangeObject* self) { return reinterpret_cast<GlueMeterObject*>(exchange_kind->glue.of(self->site))->sums; }

inline bool stage_of(PyObject* given, int& stage) {
  const long number = PyLong_AsLong(given);
  if (number == -1 && PyErr_Occurred()) return false;
  if (number < 0 || number >= kStages) {
    PyErr_SetString(PyExc_IndexError, "there is no such stage");
    return false;
  }
  stage = int(number);
  return true;
}

inline int exchange_init(PyObject* me, PyObject* arguments, PyObject* named) {
  static const char* kNames[] = {"connection", "site", "head", "first_byte_ns", nullptr};
  PyObject *connection, *site, *head;
  long long first_byte_ns;
  if (!PyArg_ParseTupleAndKeywords(arguments, named, "OOOL", const_cast<char**>(kNames), &connection, &site, &head, &first_byte_ns)) return -1;
  ExchangeObject* self = exchange(me);
  const ExchangeKind* kind = exchange_kind;
  if (!kind || self->site || !ExchangeKind::is(site, kind->site)) {
    PyErr_SetString(PyExc_TypeError, "an exchange is made once, of a site");
    return -1;
  }
  if (head == Py_None) head = kind->unreadable.ptr();
  if (!ExchangeKind::is(head, kind->head)) {
    PyErr_SetString(PyExc_TypeError, "an exchange begins with a head");
    return -1;
  }
  PyObject *ids = kind->ids.of(site), *glue_meter = kind->glue.of(site);
  if (!ids || !PyObject_TypeCheck(ids, reinterpret_cast<PyTypeObject*>(kind->ids_type.ptr())) || !glue_meter ||
      !PyObject_TypeCheck(glue_meter, reinterpret_cast<PyTypeObject*>(kind->glue_type.ptr()))) {
    PyErr_SetString(PyExc_TypeError, "a site has names for requests and a meter of glue");
    return -1;
  }
  PyTypeObject* clock_type = reinterpret_cast<PyTypeObject*>(kind->clock_type.ptr());
  self->stages = clock_type->tp_alloc(clock_type, 0);
  if (!self->stages) return -1;
  sums(self).begin(first_byte_ns);
  self->id = id_of(reinterpret_cast<RequestIdsObject*>(ids), kind->values.of(head));
  if (!self->id) return -1;
  self->connection = Py_NewRef(connection);
  self->site = Py_NewRef(site);
  self->head = Py_NewRef(head);
  for (PyObject** none : {&self->action, &self->intake, &self->on_gone, &self->receipt, &self->explain, &self->expired}) *none = Py_NewRef(Py_None);
  self->identity = Py_NewRef(kind->identity.ptr());
  self->dialect = Py_NewRef(kind->dialect.ptr());
  self->media = Py_NewRef(kind->media.ptr());
  self->more_headers = PyTuple_New(0);
  self->allow = PyBytes_FromStringAndSize(nullptr, 0);
  self->body = Py_NewRef(self->allow);
  self->streaming = Py_NewRef(Py_False);
  self->tells_when = Py_NewRef(Py_True);
  self->deadline_ns = Py_NewRef(kind->never.ptr());
  glue(self).enter(first_byte_ns);
  return 0;
}

inline PyObject* exchange_mark(PyObject* me, PyObject* given) {
  ExchangeObject* self = exchange(me);
  int stage;
  int64_t now;
  if (!stage_of(given, stage) || !now_ns(self, now)) return nullptr;
  sums(self).mark(stage, now);
  Py_RETURN_NONE;
}

// The last write is next; what the ledger is to tell comes before it.
inline bool finish(ExchangeObject* self, PyObject* status) {
  Py_XSETREF(self->on_gone, Py_NewRef(Py_None));
  int64_t now;
  if (!now_ns(self, now)) return false;
  sums(self).mark(kFrame, now);
  if (self->receipt == Py_None) return true;
  PyObject* filed = PyObject_CallMethodOneArg(reinterpret_cast<PyObject*>(self), exchange_kind->file.ptr(), status);
  Py_XDECREF(filed);
  return filed != nullptr;
}

// Close the account, once: a client that is cut by its own last write has left already. What would be called no more is let go of, as it
// may hold the exchange: no request should be left to the garbage collector.
inline bool leave(ExchangeObject* self, int stage) {
  if (self->left) return true;
  self->left = 1;
  for (PyObject** over : {&self->action, &self->intake, &self->expired}) Py_XSETREF(*over, Py_NewRef(Py_None));
  int64_t now;
  if (!now_ns(self, now)) return false;
  sums(self).mark(stage, now);
  if (!self->parked) glue(self).leave(now);
  return true;
}

inline PyObject* exchange_finish(PyObject* me, PyObject* status) {
  if (!finish(exchange(me), status)) return nullptr;
  Py_RETURN_NONE;
}

inline PyObject* exchange_leave(PyObject* me, PyObject* given) {
  int stage;
  if (!stage_of(given, stage) || !leave(exchange(me), stage)) return nullptr;
  Py_RETURN_NONE;
}

// A complete reply, in one write: status, headers, body, and by name keep_alive and spelled. As exchange.Carrier.reply wants it.
inline PyObject* exchange_reply(PyObject* me, PyObject* const* given, Py_ssize_t count, PyObject* names) {
  ExchangeObject* self = exchange(me);
  const ExchangeKind* kind = exchange_kind;
  const Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
  PyObject *kept = Py_True, *spelled = nullptr;
  bool understood = count == 3;
  for (Py_ssize_t i = 0; i < named; i++) {
    PyObject* name = PyTuple_GET_ITEM(names, i);
    if (PyUnicode_Compare(name, kind->kept.ptr()) == 0) kept = given[count + i];
    else if (PyUnicode_Compare(name, kind->spelled.ptr()) == 0) spelled = given[count + i];
    else understood = false;
  }
  if (!lives(self)) return nullptr;
  if (!understood || (spelled && !PyBytes_Check(spelled))) return PyErr_Format(PyExc_TypeError, "a reply is a status, headers and a body");
  if (self->left) Py_RETURN_NONE;
  nb::object headers = nb::borrow(given[1]);
  if (PyObject_IsTrue(self->more_headers) > 0) headers = nb::steal(PySequence_Concat(self->more_headers, headers.ptr()));
  if (!headers.is_valid() || !finish(self, given[0])) return nullptr;
  if (!ExchangeKind::is(self->dialect, kind->dialects)) return PyErr_Format(PyExc_TypeError, "a dialect is expected");
  const nb::object carrier = nb::borrow(self->connection), spelling = nb::steal(PyObject_GetAttr(carrier.ptr(), kind->common.ptr()));
  if (!spelling.is_valid()) return nullptr;
  PyObject* origin = PyDict_GetItemWithError(kind->values.of(self->head), kind->origin_field.ptr());
  if (!origin && PyErr_Occurred()) return nullptr;
  PyObject* told[] = {spelling.ptr(), self->id, kind->id_header.of(self->dialect), origin ? origin : Py_None};
  PyObject* common = PyObject_VectorcallMethod(kind->of.ptr(), told, 4, nullptr);
  if (common && spelled) PyBytes_Concat(&common, spelled);
  if (!common) return nullptr;
  const nb::object all = nb::steal(common);
  const nb::object draining = nb::steal(PyObject_GetAttr(carrier.ptr(), kind->draining.ptr()));
  if (!draining.is_valid()) return nullptr;
  const bool keeps = kept == Py_True && kind->keep_alive.of(self->head) == Py_True && draining.ptr() == Py_False;
  const int head_only = PyUnicode_Compare(kind->method.of(self->head), kind->head_method.ptr()) == 0;
  PyObject* reply[] = {carrier.ptr(), given[0], all.ptr(), headers.ptr(), given[2], keeps ? Py_True : Py_False, head_only ? Py_True : Py_False};
  const nb::object written = nb::steal(PyObject_VectorcallMethod(kind->reply.ptr(), reply, 5, kind->kept_and_head_only.ptr()));
  if (!written.is_valid() || !leave(self, kWrite)) return nullptr;
  Py_RETURN_NONE;
}

inline int exchange_traverse(PyObject* me, visitproc visit, void* arg) {
  ExchangeObject* self = exchange(me);
  for (PyObject** field = &self->connection; field <= &self->deadline_ns; field++) Py_VISIT(*field);
  Py_VISIT(Py_TYPE(me));
  return 0;
}

inline int exchange_clear(PyObject* me) {
  ExchangeObject* self = exchange(me);
  for (PyObject** field = &self->connection; field <= &self->deadline_ns; field++) Py_CLEAR(*field);
  return 0;
}

inline void exchange_dealloc(PyObject* me) {
  PyTypeObject* type = Py_TYPE(me);
  PyObject_GC_UnTrack(me);
  exchange_clear(me);
  type->tp_free(me);
  Py_DECREF(type);
}

// RequestIds

inline RequestIdsObject* request_ids(PyObject* self) { return reinterpret_cast<RequestIdsObject*>(self); }

inline int ids_init(PyObject* me, PyObject* arguments, PyObject* named) {
  static const char* kNames[] = {"prefix", nullptr};
  PyObject* prefix;
  if (!PyArg_ParseTupleAndKeywords(arguments, named, "S", const_cast<char**>(kNames), &prefix)) return -1;
  Py_XSETREF(request_ids(me)->prefix, Py_NewRef(prefix));
  return 0;
}

inline void ids_dealloc(PyObject* me) {
  PyTypeObject* type = Py_TYPE(me);
  Py_CLEAR(request_ids(me)->prefix);
  type->tp_free(me);
  Py_DECREF(type);
}

inline PyObject* ids_new(PyObject* me, PyObject*) { return numbered_id(request_ids(me)); }

}  // namespace zl
