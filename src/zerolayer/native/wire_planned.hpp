// Requests of the schema in the usual shape: token ids or messages, then a tail whose plan is known (wire/protobuf_request.py). What else a
// body may be, and whatever is wrong with it, is told in Python.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include <bit>
#include <vector>

#include "front_slots.hpp"
#include "wire_template.hpp"

namespace zl {

namespace nb = nanobind;

class PlannedBodies {
 public:
  // `array` makes the token ids; `ids` and `messages` are the routes of requests that have them, `roles` the texts of roles 1 to 3.
  PlannedBodies(nb::handle plan, nb::handle array, nb::object message, nb::object request, nb::object ids, nb::object messages, nb::tuple roles)
      : plan_(nb::borrow(plan)), array_(nb::borrow(array)), message_(message), request_(request), by_ids_(ids), by_messages_(messages), roles_(roles),
        system_(plan, "system"), model_(plan, "model"), sampling_(plan, "sampling"), max_tokens_(plan, "max_tokens"), stop_(plan, "stop"),
        stream_(plan, "stream"), ignore_eos_(plan, "ignore_eos"), deadline_ms_(plan, "deadline_ms"), max_age_ms_(plan, "max_age_ms"),
        output_(plan, "output") {
    if (roles.size() != kRoles) throw nb::value_error("there are three roles");
  }

  // As _native.pyi has it.
  nb::object decode(nb::bytes body, nb::dict plans, size_t body_bytes, size_t most_messages) const {
    const Bytes all = view(body);
    if (all.size() > body_bytes || all.empty()) return nb::none();
    if (uint8_t(all[0]) == kTokenIds) {
      size_t at = 1, size;
      if (!length(all, at, size) || !size || size % 4 || size > all.size() - at) return nb::none();
      const nb::object plan = plan_of(plans, all.substr(at + size));
      return plan.is_valid() ? made(plan.ptr(), by_ids_, no_messages_, ids(all.substr(at, size))) : nb::none();
    }
    std::vector<Message> found;
    size_t at = 0;
    while (at < all.size() && uint8_t(all[at]) == kMessage) {
      Message message;
      if (found.size() == most_messages || !read(all, at, message)) return nb::none();
      found.push_back(message);
    }
    if (found.empty()) return nb::none();
    const nb::object plan = plan_of(plans, all.substr(at)), messages = plan.is_valid() ? texts(found) : nb::object();
    return messages.is_valid() ? made(plan.ptr(), by_messages_, messages, no_prompt_) : nb::none();
  }

 private:
  // Tags: a field's number and how it is written.
  enum Tag : uint8_t { kTokenIds = 1 << 3 | 2, kMessage = 2 << 3 | 2, kRole = 1 << 3, kContent = 2 << 3 | 2 };
  static constexpr size_t kRoles = 3;
  struct Message {
    size_t role;
    Bytes content;
  };

  // A length of one or two bytes at `at`, which is left behind it.
  static bool length(Bytes all, size_t& at, size_t& size) {
    if (at >= all.size()) return false;
    size = uint8_t(all[at++]);
    if (size < 0x80) return true;
    if (at >= all.size() || uint8_t(all[at]) >= 0x80) return false;
    size = (size & 0x7F) | size_t(uint8_t(all[at++])) << 7;
    return true;
  }

  // A message of a role and then a content, at `at`, which is left behind it.
  static bool read(Bytes all, size_t& at, Message& message) {
    size_t size, content;
    if (!length(all, ++at, size) || size > all.size() - at || size < 4) return false;
    const size_t end = at + size;
    if (uint8_t(all[at]) != kRole || uint8_t(all[at + 2]) != kContent) return false;
    message.role = uint8_t(all[at + 1]);
    at += 3;
    if (message.role < 1 || message.role > kRoles || !length(all, at, content) || at > end || content != end - at) return false;
    message.content = all.substr(at, content);
    at = end;
    return true;
  }

  // Invalid where the tail is not known, or has a system text, which stands before all messages.
  nb::object plan_of(const nb::dict& plans, Bytes tail) const {
    const nb::bytes key(tail.data(), tail.size());
    PyObject* found = PyDict_GetItemWithError(plans.ptr(), key.ptr());
    if (!found && PyErr_Occurred()) throw nb::python_error();
    if (found && !is(found, plan_)) throw nb::type_error("a plan is expected");
    return found && system_.of(found) == Py_None ? nb::borrow(found) : nb::object();
  }

  nb::object ids(Bytes raw) const {
    if constexpr (std::endian::native != std::endian::little) return nb::object();
    const nb::bytes bytes(raw.data(), raw.size());
    PyObject* given[] = {kind_.ptr(), bytes.ptr()};
    return checked(PyObject_Vectorcall(array_.ptr(), given, std::size(given), nullptr));
  }

  // Invalid where a content is no text.
  nb::object texts(const std::vector<Message>& found) const {
    const nb::object messages = checked(PyTuple_New(Py_ssize_t(found.size())));
    for (size_t i = 0; i < found.size(); i++) {
      const Bytes content = found[i].content;
      const nb::object text = nb::steal(PyUnicode_DecodeUTF8(content.data(), Py_ssize_t(content.size()), nullptr));
      if (!text.is_valid()) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) throw nb::python_error();
        PyErr_Clear();
        return nb::object();
      }
      PyObject* given[] = {PyTuple_GET_ITEM(roles_.ptr(), Py_ssize_t(found[i].role - 1)), text.ptr()};
      PyTuple_SET_ITEM(messages.ptr(), Py_ssize_t(i), checked(PyObject_Vectorcall(message_.ptr(), given, std::size(given), nullptr)).release().ptr());
    }
    return messages;
  }

  nb::object made(PyObject* plan, const nb::object& route, const nb::object& messages, const nb::object& prompt) const {
    if (!prompt.is_valid()) return nb::none();
    PyObject* given[] = {route.ptr(), model_.of(plan), messages.ptr(), prompt.ptr(), sampling_.of(plan), max_tokens_.of(plan), stop_.of(plan), stream_.of(plan),
                         Py_False, ignore_eos_.of(plan), Py_False, deadline_ms_.of(plan), max_age_ms_.of(plan), output_.of(plan)};
    for (PyObject* each : given)
      if (!each) throw nb::type_error("a field was not set");
    const size_t places = std::size(given) - 1;
    return checked(PyObject_Vectorcall(request_.ptr(), given, places, given[places] == Py_None ? nullptr : output_name_.ptr()));
  }

  static nb::object checked(PyObject* made) {
    if (!made) throw nb::python_error();
    return nb::steal(made);
  }

  const nb::object plan_, array_, message_, request_, by_ids_, by_messages_;
  const nb::tuple roles_;
  const Slot system_, model_, sampling_, max_tokens_, stop_, stream_, ignore_eos_, deadline_ms_, max_age_ms_, output_;
  const nb::object kind_ = nb::str("I"), no_messages_ = nb::steal(PyTuple_New(0)), no_prompt_ = nb::str(""), output_name_ = nb::make_tuple("output");
};

}  // namespace zl
