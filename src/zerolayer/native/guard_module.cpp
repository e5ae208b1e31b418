// The Python face of what the guard does for every request: zerolayer.guard._native. Called on the loop only; nothing here waits.
#include <nanobind/nanobind.h>

#include "guard_records.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

std::string_view view(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

std::string_view view(const nb::str& text) {
  Py_ssize_t size;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (!data) throw nb::python_error();
  return {data, size_t(size)};
}

nb::bytes to_bytes(const zl::Sha256& hash) { return nb::bytes(reinterpret_cast<const char*>(hash.data()), hash.size()); }

// Memory of a mapped file, writable; kept from being unmapped until `release`.
class Mapped {
 public:
  explicit Mapped(nb::object memory) {
    if (PyObject_GetBuffer(memory.ptr(), &buffer_, PyBUF_WRITABLE)) throw nb::python_error();
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() { release(); }
  void release() { PyBuffer_Release(&buffer_); }  // a second time it does nothing
  bool holds(size_t place, size_t bytes) const {
    const size_t size = buffer_.obj ? size_t(buffer_.len) : 0;
    return bytes <= size && place <= size - bytes;
  }
  uint8_t* at(size_t place) const { return static_cast<uint8_t*>(buffer_.buf) + place; }

 private:
  Py_buffer buffer_{};
};

// States one behind the other from byte `at` on, as long as there is room.
class StateLog : public Mapped {
 public:
  StateLog(nb::object memory, size_t at) : Mapped(memory), at(at) {}
  bool append(const zl::Account& account) {
    if (!holds(at, zl::kStateBytes)) return false;
    zl::write_state(account, Mapped::at(at));
    at += zl::kStateBytes;
    return true;
  }
  size_t at;
};

// A segment of the ledger.
class Sheet : public Mapped {
 public:
  explicit Sheet(nb::object memory) : Mapped(memory) {}
  nb::bytes request(size_t at, uint64_t sequence, uint64_t ended_us, uint8_t outcome, uint16_t status, uint32_t flags, nb::bytes key_id,
                    nb::bytes tenant, nb::bytes model, nb::str request_id, nb::bytes route, nb::str code, uint64_t prompt_tokens,
                    uint64_t cached_tokens, uint64_t completion_tokens, uint64_t max_tokens, uint64_t core_ns, uint64_t first_token_us,
                    uint64_t deadline_ms, nb::tuple stages_ns) {
    if (at < zl::kHashBytes || !holds(at, zl::kContentBytes + zl::kHashBytes)) throw nb::index_error("no room for a record");
    if (stages_ns.size() != zl::kStages) throw nb::value_error("a request has nine stages");
    zl::RequestRecord record{outcome,      status,       flags,        sequence,      ended_us,          view(key_id), view(tenant),
                             view(model),  view(request_id), view(route), view(code), prompt_tokens, cached_tokens, completion_tokens, max_tokens,
                             core_ns,      first_token_us, deadline_ms, {}};
    for (size_t i = 0; i < zl::kStages; i++) record.stages_ns[i] = nb::cast<uint64_t>(stages_ns[i]);
    zl::write_request(record, Mapped::at(at));
    return nb::bytes(reinterpret_cast<const char*>(Mapped::at(at) + zl::kContentBytes), zl::kHashBytes);
  }
};

}  // namespace

NB_MODULE(_native, m) {
  nb::class_<zl::Account>(m, "Account")
      .def("__init__",
           [](zl::Account* self, nb::bytes id, int64_t requests, int64_t tokens, int64_t concurrent, int64_t compute_us, int64_t now_us) {
             new (self) zl::Account{};
             std::memcpy(self->id.data(), id.c_str(), std::min(id.size(), self->id.size()));
             self->requests_per_minute = requests;
             self->tokens_per_minute = tokens;
             self->concurrent = concurrent;
             self->compute_us_per_day = compute_us;
             self->at_us = now_us;
             self->day = now_us / zl::kDayUs;
           })
      .def_rw("at_us", &zl::Account::at_us)
      .def_rw("day", &zl::Account::day)
      .def_rw("requests_debt", &zl::Account::requests_debt)
      .def_rw("tokens_debt", &zl::Account::tokens_debt)
      .def_rw("used_us", &zl::Account::used_us)
      .def_rw("held_requests", &zl::Account::held_requests)
      .def_rw("held_tokens", &zl::Account::held_tokens)
      .def_rw("held_us", &zl::Account::held_us)
      .def_rw("running", &zl::Account::running)
      .def_rw("lent_requests", &zl::Account::lent_requests)
      .def_rw("lent_tokens", &zl::Account::lent_tokens)
      .def_rw("lent_us", &zl::Account::lent_us)
      .def("advance", &zl::Account::advance)
      .def("claim", &zl::Account::claim)
      .def("hold", &zl::Account::hold)
      .def("begin", &zl::Account::begin)
      .def("resize", &zl::Account::resize)
      .def("finish", &zl::Account::finish)
      .def("forget", &zl::Account::forget);
  nb::class_<StateLog>(m, "StateLog")
      .def(nb::init<nb::object, size_t>())
      .def_ro("at", &StateLog::at)
      .def("append", &StateLog::append)
      .def("release", &StateLog::release);
  nb::class_<Sheet>(m, "Sheet").def(nb::init<nb::object>()).def("request", &Sheet::request).def("release", &Sheet::release);
  m.def("sha256", [](nb::bytes data) { return to_bytes(zl::sha256({reinterpret_cast<const uint8_t*>(data.c_str()), data.size()})); });
  m.def("sha256_portable", [](nb::bytes data) { return to_bytes(zl::sha256_portable({reinterpret_cast<const uint8_t*>(data.c_str()), data.size()})); });
}
