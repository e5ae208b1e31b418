// What every exchange has and does, whatever its reply: its fields, its name, its account of time. The rest of it is front/exchange.py.
// Included by front_module.cpp only, as it knows Python: a plain type, whose fields cost those who read them in Python no more than slots.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>
#include <structmember.h>

#include <charconv>
#include <cstdint>
#include <cstring>

#include "front_clocks.hpp"
#include "front_common.hpp"
#include "front_slots.hpp"
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
  // For Python; from the first to the last one they are visited and let go of in their order.
  PyObject *connection, *site, *head, *id, *stages, *action, *intake, *on_gone, *receipt, *identity, *dialect, *explain, *more_headers, *allow,
      *body, *media, *expired, *streaming, *tells_when, *deadline_ns;
  char left, parked;
};

// What all exchanges share, told once by front/exchange.py.
struct ExchangeKind {
  explicit ExchangeKind(nb::dict given)
      : clock_type(given["StageClock"]), glue_type(given["GlueMeter"]), ids_type(given["RequestIds"]),
        common_type(given["CommonHeaders"]), unreadable(given["unreadable"]),
        identity(given["identity"]), dialect(given["dialect"]), media(given["media"]), never(given["never"]), site(given["Site"]),
        clock_ns(site, "clock_ns"), ids(site, "ids"), glue(site, "glue"), head(given["Head"]), values(head, "values"), method(head, "method"),
        keep_alive(head, "keep_alive"), dialects(given["Dialect"]), id_header(dialects, "id_header") {}
  const nb::object clock_type, glue_type, ids_type, common_type, unreadable, identity, dialect, media, never, site;
  const Slot clock_ns, ids, glue;
  const nb::object head;
  const Slot values, method, keep_alive;
  const nb::object dialects;
  const Slot id_header;
  const nb::object common = name("common"), draining = name("draining"), of = name("of"), reply = name("reply"), file = name("_file");
  const nb::object end_stream = name("end_stream"), whole_stream = name("whole_stream");
  const nb::object kept = name("keep_alive"), spelled = name("spelled"), kept_and_head_only = nb::make_tuple(kept, name("head_only"));
  const nb::object kept_alone = nb::make_tuple(kept), ok = nb::int_(200);
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
  return lives(self) && monotonic_ns(exchange_kind->clock_ns.of(self->site), now);
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

// Arguments are read by their places, as it is done for every request: to look for names takes as long as all the rest.
inline int exchange_init(PyObject* me, PyObject* arguments, PyObject* named) {
  PyObject *connection, *site, *head, *first_byte;
  if (named || !PyArg_UnpackTuple(arguments, "Exchange", 4, 4, &connection, &site, &head, &first_byte)) return only_by_place();
  const int64_t first_byte_ns = PyLong_AsLongLong(first_byte);
  if (first_byte_ns == -1 && PyErr_Occurred()) return -1;
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
  for (PyObject** none : {&self->action, &self->intake, &self->on_gone, &self->receipt, &self->explain, &self->expired, &self->tells_when}) *none = Py_NewRef(Py_None);
  self->identity = Py_NewRef(kind->identity.ptr());
  self->dialect = Py_NewRef(kind->dialect.ptr());
  self->media = Py_NewRef(kind->media.ptr());
  self->more_headers = PyTuple_New(0);
  self->allow = PyBytes_FromStringAndSize(nullptr, 0);
  self->body = Py_NewRef(self->allow);
  self->streaming = Py_NewRef(Py_False);
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

// The headers that the reply has whatever it is, as its carrier spells them; invalid with an exception set.
inline nb::object common_of_reply(const ExchangeObject* self) {
  const ExchangeKind* kind = exchange_kind;
  if (!ExchangeKind::is(self->dialect, kind->dialects)) return nb::steal(PyErr_Format(PyExc_TypeError, "a dialect is expected"));
  const nb::object spelling = nb::steal(PyObject_GetAttr(self->connection, kind->common.ptr()));
  if (!spelling.is_valid()) return spelling;
  PyObject *also_as = kind->id_header.of(self->dialect), *origin = PyDict_GetItemWithError(kind->values.of(self->head), kind->origin_field.ptr());
  if (!origin && PyErr_Occurred()) return nb::object();
  const bool usual = !origin && PyBytes_Check(also_as) && !PyBytes_GET_SIZE(also_as);
  if (usual && PyObject_TypeCheck(spelling.ptr(), reinterpret_cast<PyTypeObject*>(kind->common_type.ptr())))
    return nb::steal(common_of(spelling.ptr(), self->id));
  PyObject* told[] = {spelling.ptr(), self->id, also_as, origin ? origin : Py_None};
  return nb::steal(PyObject_VectorcallMethod(kind->of.ptr(), told, 4, nullptr));
}

// Whether the connection lives on after the reply, as Python's own; null with an exception set.
inline PyObject* keep_alive(const ExchangeObject* self) {
  const ExchangeKind* kind = exchange_kind;
  const nb::object draining = nb::steal(PyObject_GetAttr(self->connection, kind->draining.ptr()));
  if (!draining.is_valid()) return nullptr;
  return kind->keep_alive.of(self->head) == Py_True && draining.ptr() == Py_False ? Py_True : Py_False;
}

// One tuple of headers behind the other; most replies have one of them only.
inline nb::object joined(PyObject* first, PyObject* second) {
  if (PyTuple_Check(first) && PyTuple_Check(second)) {
    if (!PyTuple_GET_SIZE(first)) return nb::borrow(second);
    if (!PyTuple_GET_SIZE(second)) return nb::borrow(first);
  }
  return nb::steal(PySequence_Concat(first, second));
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
  const nb::object headers = joined(self->more_headers, given[1]);
  if (!headers.is_valid() || !finish(self, given[0])) return nullptr;
  const nb::object carrier = nb::borrow(self->connection);
  PyObject* common = common_of_reply(self).release().ptr();
  if (common && spelled) PyBytes_Concat(&common, spelled);
  if (!common) return nullptr;
  const nb::object all = nb::steal(common);
  PyObject* keeps = kept == Py_True ? keep_alive(self) : Py_False;
  if (!keeps) return nullptr;
  const int head_only = PyUnicode_Compare(kind->method.of(self->head), kind->head_method.ptr()) == 0;
  PyObject* reply[] = {carrier.ptr(), given[0], all.ptr(), headers.ptr(), given[2], keeps, head_only ? Py_True : Py_False};
  const nb::object written = nb::steal(PyObject_VectorcallMethod(kind->reply.ptr(), reply, 5, kind->kept_and_head_only.ptr()));
  if (!written.is_valid() || !leave(self, kWrite)) return nullptr;
  Py_RETURN_NONE;
}

// The last events of a stream, and its trailers if it has some. As exchange.Carrier.end_stream and whole_stream want it.
inline PyObject* exchange_end_stream(PyObject* me, PyObject* const* given, Py_ssize_t count) {
  ExchangeObject* self = exchange(me);
  const ExchangeKind* kind = exchange_kind;
  if (!lives(self)) return nullptr;
  if (count < 1 || count > 2) return PyErr_Format(PyExc_TypeError, "a stream ends with events, and trailers");
  if (self->left) Py_RETURN_NONE;
  if (!finish(self, kind->ok.ptr())) return nullptr;
  const nb::object carrier = nb::borrow(self->connection), none = nb::steal(PyTuple_New(0));
  PyObject *keeps = keep_alive(self), *trailers = count == 2 ? given[1] : none.ptr();
  if (!keeps) return nullptr;
  nb::object written;
  if (self->streaming == Py_True) {
    PyObject* end[] = {carrier.ptr(), given[0], trailers, keeps};
    written = nb::steal(PyObject_VectorcallMethod(kind->end_stream.ptr(), end, 3, kind->kept_alone.ptr()));
  } else {
    const nb::object common = common_of_reply(self), headers = joined(self->media, self->more_headers);
    if (!common.is_valid() || !headers.is_valid()) return nullptr;
    Py_XSETREF(self->streaming, Py_NewRef(Py_True));
    PyObject* whole[] = {carrier.ptr(), common.ptr(), headers.ptr(), given[0], trailers, keeps};
    written = nb::steal(PyObject_VectorcallMethod(kind->whole_stream.ptr(), whole, 5, kind->kept_alone.ptr()));
  }
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
