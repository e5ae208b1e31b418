// Structs of guard/deadline/ in Python as those of the calendar: read attribute by attribute, as they are never kept.
#pragma once

#include <nanobind/nanobind.h>

#include "deadline_admission.hpp"

namespace zl::deadline {

// An attribute's name, made once.
class Name {
 public:
  explicit Name(const char* text) : text_(PyUnicode_InternFromString(text)) {}
  nanobind::object of(nanobind::handle object) const {
    PyObject* value = PyObject_GetAttr(object.ptr(), text_);
    if (!value) throw nanobind::python_error();
    return nanobind::steal(value);
  }

 private:
  PyObject* text_;
};

inline int64_t number_of(nanobind::handle value) {
  const int64_t number = PyLong_AsLongLong(value.ptr());
  if (number == -1 && PyErr_Occurred()) throw nanobind::python_error();
  return number;
}

// A name of whoever asks, or of a request: of whatever kind, and never the same as one of another kind.
inline std::string name_of(nanobind::handle name) {
  if (PyBytes_Check(name.ptr())) return std::string(1, 'b').append(PyBytes_AS_STRING(name.ptr()), size_t(PyBytes_GET_SIZE(name.ptr())));
  if (PyTuple_Check(name.ptr())) {  // of names, each behind its length
    std::string parts(1, '(');
    for (nanobind::handle each : nanobind::borrow<nanobind::tuple>(name)) {
      const std::string part = name_of(each);
      parts.append(std::to_string(part.size())).append(1, ':').append(part);
    }
    return parts;
  }
  if (PyLong_Check(name.ptr())) return "i" + std::to_string(number_of(name));
  if (!PyUnicode_Check(name.ptr())) throw nanobind::type_error("a name is text, bytes, a number, or names");
  Py_ssize_t size;
  if (const char* data = PyUnicode_AsUTF8AndSize(name.ptr(), &size)) return std::string(1, 't').append(data, size_t(size));
  PyErr_Clear();  // halves of surrogate pairs
  const auto text = nanobind::steal<nanobind::bytes>(PyUnicode_AsEncodedString(name.ptr(), "utf-8", "surrogatepass"));
  if (!text.is_valid()) throw nanobind::python_error();
  return std::string(1, 't').append(text.c_str(), text.size());
}

// The name that `name_of` had.
inline nanobind::object named(const std::string& name) {
  if (name.empty()) return nanobind::none();
  const char* data = name.data() + 1;
  const auto size = Py_ssize_t(name.size() - 1);
  if (name[0] == 'b') return nanobind::bytes(data, size_t(size));
  if (name[0] == '(') {
    nanobind::list parts;
    for (size_t at = 1; at < name.size();) {
      const size_t colon = name.find(':', at), size = std::stoul(name.substr(at, colon - at));
      parts.append(named(name.substr(colon + 1, size)));
      at = colon + 1 + size;
    }
    return nanobind::tuple(parts);
  }
  if (name[0] == 'i') return nanobind::steal(PyLong_FromString(data, nullptr, 10));
  return nanobind::steal(PyUnicode_DecodeUTF8(data, size, "surrogatepass"));
}

}  // namespace zl::deadline

namespace nanobind::detail {

// A caster reads what `read` makes of a Python object; whatever goes wrong there is the caller's TypeError.
#define ZL_READS(Type, described)                                    \
  NB_TYPE_CASTER(Type, const_name(described))                        \
  bool from_python(handle source, uint8_t, cleanup_list*) noexcept { \
    try {                                                            \
      value = read(source);                                          \
      return true;                                                   \
    } catch (...) {                                                  \
      PyErr_Clear();                                                 \
      return false;                                                  \
    }                                                                \
  }

template <>
struct type_caster<zl::deadline::Work> {
  ZL_READS(zl::deadline::Work, "Work")
  static zl::deadline::Work read(handle source) {
    static const zl::deadline::Name chunks("chunks"), chunk_ns("chunk_ns"), full_ns("full_ns"), tokens("tokens");
    using zl::deadline::number_of;
    const zl::deadline::Work work{number_of(chunks.of(source)), number_of(chunk_ns.of(source)), number_of(full_ns.of(source)), number_of(tokens.of(source))};
    if (work.chunks < 0) throw std::invalid_argument("a prompt has chunks");
    return work;
  }
  static handle from_cpp(const zl::deadline::Work& work, rv_policy, cleanup_list*) noexcept {
    try {
      return module_::import_("zerolayer.guard.deadline.booking").attr("Work")(work.chunks, work.chunk_ns, work.full_ns, work.tokens).release();
    } catch (python_error& error) {
      error.restore();
      return {};
    }
  }
};

template <>
struct type_caster<zl::deadline::Terms> {
  ZL_READS(zl::deadline::Terms, "Terms")
  static zl::deadline::Terms read(handle source) {
    static const zl::deadline::Name from_ns("from_ns"), first("first_token_ns"), gap("per_token_ns"), end("end_ns"), patience("patience_ns"), urgent("urgent");
    using zl::deadline::number_of;
    return {number_of(from_ns.of(source)), number_of(first.of(source)),    number_of(gap.of(source)),
            number_of(end.of(source)),     number_of(patience.of(source)), urgent.of(source).is(handle(Py_True))};
  }
  static handle from_cpp(const zl::deadline::Terms& terms, rv_policy, cleanup_list*) noexcept {
    try {
      return module_::import_("zerolayer.guard.deadline.booking")
          .attr("Terms")(terms.from_ns, terms.first_token_ns, terms.per_token_ns, terms.end_ns, terms.patience_ns, terms.urgent)
          .release();
    } catch (python_error& error) {
      error.restore();
      return {};
    }
  }
};

template <>
struct type_caster<zl::deadline::Asker> {
  ZL_READS(zl::deadline::Asker, "Asker")
  static zl::deadline::Asker read(handle source) {
    static const zl::deadline::Name credential("credential"), retry("retry"), ticket("ticket"), last("last"), reads_ms("reads_ms");
    using zl::deadline::Retry;
    zl::deadline::Asker asker;
    asker.credential = zl::deadline::name_of(credential.of(source));
    const object again = retry.of(source), named = ticket.of(source);
    asker.retry = again.is_none() ? Retry::unknown : again.is(handle(Py_True)) ? Retry::yes : Retry::no;
    if (!named.is_none()) asker.ticket = cast<str>(named).c_str();
    asker.last = last.of(source).is(handle(Py_True));
    asker.reads_ms = reads_ms.of(source).is(handle(Py_True));
    return asker;
  }
};

template <>
struct type_caster<zl::deadline::Wish> {
  ZL_READS(zl::deadline::Wish, "Wish")
  static zl::deadline::Wish read(handle source) {
    static const zl::deadline::Name most("most"), least("least"), promised("promised"), limits("limits"), tier("tier"), key("key");
    static const zl::deadline::Name first("first_token_ns"), gap("per_token_ns"), end("end_ns"), patience("patience_ns");
    using zl::deadline::number_of;
    using Works = type_caster<zl::deadline::Work>;
    const object upper = most.of(source), lower = least.of(source), told = promised.of(source), given = limits.of(source), patient = patience.of(given);
    zl::deadline::Wish wish;
    wish.most = Works::read(upper);
    wish.least = lower.is(upper) ? wish.most : Works::read(lower);
    wish.promised = told.is(upper) ? wish.most : Works::read(told);
    wish.limits = {number_of(first.of(given)), number_of(gap.of(given)), number_of(end.of(given)), zl::deadline::kNever};
    if (!patient.is_none()) wish.limits.patience_ns = number_of(patient);
    wish.tier = zl::deadline::Tier(std::clamp<int64_t>(number_of(tier.of(source)), 0, 2));
    wish.key = zl::deadline::name_of(key.of(source));
    return wish;
  }
};

#undef ZL_READS

}  // namespace nanobind::detail
