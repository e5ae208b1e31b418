// The Python face of what the door does for all streams of a step: zerolayer.front._native. Called on the loop only; nothing here waits.
#include <nanobind/nanobind.h>

#include <vector>

#include "front_clocks.hpp"
#include "front_common.hpp"
#include "front_exchange.hpp"
#include "front_growth.hpp"
#include "front_sends.hpp"
#include "front_sockets.hpp"
#include "numbers.hpp"
#include "plain_type.hpp"

namespace nb = nanobind;

namespace {

// (place, bytes sent) of each piece that was not sent as a whole.
nb::list send_each(nb::list descriptors, nb::list pieces, bool let_go) {
  const size_t count = pieces.size();
  if (descriptors.size() != count) throw nb::value_error("as many descriptors as pieces");
  std::vector<nb::bytes> held;  // whoever else runs meanwhile may change the lists
  std::vector<zl::Piece> sends;
  held.reserve(count);
  sends.reserve(count);
  for (size_t i = 0; i < count; i++) {
    nb::bytes data;
    int descriptor;
    if (!nb::try_cast(pieces[i], data) || !nb::try_cast(descriptors[i], descriptor)) throw nb::type_error("integers and bytes");
    held.push_back(data);
    sends.push_back({descriptor, data.c_str(), data.size()});
  }
  if (let_go) {
    nb::gil_scoped_release others;
    zl::send_each(sends.data(), count);
  } else {
    zl::send_each(sends.data(), count);
  }
  nb::list left;
  for (size_t i = 0; i < count; i++)
    if (sends[i].sent < sends[i].bytes) left.append(nb::make_tuple(i, sends[i].sent));
  return left;
}

PyMemberDef line_numbers[] = {zl::number_at("last_ns", 0), zl::number_at("gap_ns", 1), {}};
PyMemberDef transcript_numbers[] = {zl::number_at("completion_tokens", 0), zl::number_at("token_id", 1), {}};
PyMemberDef socket_numbers[] = {zl::number_at("descriptor", 0), zl::number_at("chunked", 1), zl::number_at("sure", 2), {}};

int64_t send_now(int descriptor, nb::bytes data) { return zl::send_now(descriptor, data.c_str(), data.size()); }

template <class Function>
PyCFunction method(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyObject* exchange_begin_with(PyObject*, PyObject* given) {
  try {
    nb::dict kind;
    if (!nb::try_cast(nb::handle(given), kind)) throw nb::type_error("what exchanges share, by its names");
    zl::exchange_kind = new zl::ExchangeKind(kind);  // for as long as the process lives, as the types in it
    Py_RETURN_NONE;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const nb::builtin_exception& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
  }
  return nullptr;
}

PyMethodDef exchange_methods[] = {{"begin_with", exchange_begin_with, METH_O | METH_STATIC, nullptr},
                                  {"mark", zl::exchange_mark, METH_O, nullptr},
                                  {"reply", method(zl::exchange_reply), METH_FASTCALL | METH_KEYWORDS, nullptr},
                                  {"end_stream", method(zl::exchange_end_stream), METH_FASTCALL, nullptr},
                                  {"_finish", zl::exchange_finish, METH_O, nullptr},
                                  {"_leave", zl::exchange_leave, METH_O, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};

constexpr Py_ssize_t at(size_t offset) { return Py_ssize_t(offset); }

#define ZL_FIELD(name, member, flags) {name, T_OBJECT_EX, at(offsetof(zl::ExchangeObject, member)), flags, nullptr}
PyMemberDef exchange_members[] = {
    ZL_FIELD("_connection", connection, READONLY),
    ZL_FIELD("_site", site, READONLY),
    ZL_FIELD("head", head, READONLY),
    ZL_FIELD("id", id, READONLY),
    ZL_FIELD("stages", stages, READONLY),
    ZL_FIELD("action", action, 0),
    ZL_FIELD("intake", intake, 0),
    ZL_FIELD("on_gone", on_gone, 0),
    ZL_FIELD("receipt", receipt, 0),
    ZL_FIELD("identity", identity, 0),
    ZL_FIELD("dialect", dialect, 0),
    ZL_FIELD("explain", explain, 0),
    ZL_FIELD("more_headers", more_headers, 0),
    ZL_FIELD("allow", allow, 0),
    ZL_FIELD("body", body, 0),
    ZL_FIELD("media", media, 0),
    ZL_FIELD("expired", expired, 0),
    ZL_FIELD("streaming", streaming, 0),
    ZL_FIELD("tells_when", tells_when, 0),
    ZL_FIELD("deadline_ns", deadline_ns, 0),
    {"_left", T_BOOL, at(offsetof(zl::ExchangeObject, left)), READONLY, nullptr},
    {"_parked", T_BOOL, at(offsetof(zl::ExchangeObject, parked)), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
#undef ZL_FIELD
PyType_Slot exchange_slots[] = {{Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
                                {Py_tp_init, reinterpret_cast<void*>(zl::exchange_init)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(zl::exchange_dealloc)},
                                {Py_tp_traverse, reinterpret_cast<void*>(zl::exchange_traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(zl::exchange_clear)},
                                {Py_tp_methods, exchange_methods},
                                {Py_tp_members, exchange_members},
                                {0, nullptr}};
PyType_Spec exchange_spec = {"zerolayer.front._native.ExchangeBase", sizeof(zl::ExchangeObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, exchange_slots};

#define ZL_FIELD(name, member) {name, T_OBJECT_EX, at(offsetof(zl::CommonHeadersObject, member)), 0, nullptr}
PyMemberDef common_members[] = {ZL_FIELD("_wall_s", wall_s),
                                ZL_FIELD("_load", load),
                                ZL_FIELD("_told_load", told_load),
                                ZL_FIELD("_start", start),
                                ZL_FIELD("_between", between),
                                ZL_FIELD("_after", after),
                                {"_id_bytes", T_LONGLONG, at(offsetof(zl::CommonHeadersObject, name_bytes)), 0, nullptr},
                                {nullptr, 0, 0, 0, nullptr}};
#undef ZL_FIELD
PyMethodDef common_methods[] = {{"usual", zl::common_of, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyType_Slot common_slots[] = {{Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
                              {Py_tp_dealloc, reinterpret_cast<void*>(zl::common_dealloc)},
                              {Py_tp_traverse, reinterpret_cast<void*>(zl::common_traverse)},
                              {Py_tp_clear, reinterpret_cast<void*>(zl::common_clear)},
                              {Py_tp_methods, common_methods},
                              {Py_tp_members, common_members},
                              {0, nullptr}};
PyType_Spec common_spec = {"zerolayer.front._native.CommonHeadersBase", sizeof(zl::CommonHeadersObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, common_slots};

PyMethodDef ids_methods[] = {{"new", zl::ids_new, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyType_Slot ids_slots[] = {{Py_tp_new, reinterpret_cast<void*>(PyType_GenericNew)},
                           {Py_tp_init, reinterpret_cast<void*>(zl::ids_init)},
                           {Py_tp_dealloc, reinterpret_cast<void*>(zl::ids_dealloc)},
                           {Py_tp_methods, ids_methods},
                           {0, nullptr}};
PyType_Spec ids_spec = {"zerolayer.front._native.RequestIds", sizeof(zl::RequestIdsObject), 0, Py_TPFLAGS_DEFAULT, ids_slots};

}  // namespace

NB_MODULE(_native, m) {
  zl::own_clocks = new zl::OwnClocks;
  zl::add_numbers(m, "LineNumbers", line_numbers);
  zl::add_numbers(m, "TranscriptNumbers", transcript_numbers);
  zl::add_numbers(m, "SocketNumbers", socket_numbers);
  m.attr("CommonHeadersBase") = zl::plain_type(common_spec);
  m.attr("ExchangeBase") = zl::plain_type(exchange_spec);
  m.attr("RequestIds") = zl::plain_type(ids_spec);
  m.def("send_each", &send_each, nb::arg(), nb::arg(), nb::arg() = true);
  m.def("send_now", &send_now);
  nb::class_<zl::Sockets>(m, "Sockets", nb::is_final())
      .def(nb::init<nb::type_object>())
      .def("fileno", &zl::Sockets::fileno)
      .def("close", &zl::Sockets::close)
      .def("accept", &zl::Sockets::accept)
      .def("add", &zl::Sockets::add)
      .def("watch", &zl::Sockets::watch)
      .def("look", &zl::Sockets::look)
      .def("send", &zl::Sockets::send);
  nb::class_<zl::Growth>(m, "Growth", nb::is_final()).def(nb::init<nb::dict>()).def("grow", &zl::Growth::grow).def("send", &zl::Growth::send);
}
