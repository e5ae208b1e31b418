// Bodies of OpenAI's routes as nearly every client sends them, which msgspec has read and checked (wire/openai.py), to requests: what of them
// the contract's limits allow. What they do not allow is left to wire/openai_general.py, which words every refusal.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include <array>
#include <optional>
#include <vector>

#include "front_slots.hpp"
#include "wire_bytes.hpp"

namespace zl {

namespace nb = nanobind;

class PlainBodies {
 public:
  // `read` makes bodies of the type `plain`, those of `route`. The others are the types of what they hold, of their limits, and of what is made of them.
  PlainBodies(nb::callable read, nb::handle plain, nb::object route, nb::handle message, nb::handle options, nb::handle limits, nb::object request,
              nb::object sampling)
      : read_(read), plain_(nb::borrow(plain)), route_(route), message_(nb::borrow(message)), options_(nb::borrow(options)), limits_(nb::borrow(limits)),
        request_(request), sampling_(sampling), model_(plain, "model"), max_tokens_(plain, "max_tokens"),
        max_completion_tokens_(plain, "max_completion_tokens"), temperature_(plain, "temperature"), stop_(plain, "stop"),
        stream_(plain, "stream"), stream_options_(plain, "stream_options"), ignore_eos_(plain, "ignore_eos"), role_(message, "role"),
        include_usage_(options, "include_usage"), most_bytes_(limits, "body_bytes"), most_messages_(limits, "json_messages"), most_tokens_(limits, "max_tokens"),
        temperatures_(limits, "temperature"), most_stops_(limits, "stop"), longest_stop_(limits, "stop_chars") {
    if (nb::hasattr(plain, "messages")) messages_.emplace(plain, "messages");
    else prompt_.emplace(plain, "prompt");
    static constexpr const char* kSampling[] = {"top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed"};
    for (const char* name : kSampling) further_sampling_.emplace_back(plain, name);
  }

  // The request that `raw` is; None where that is not for here to say.
  nb::object decode(nb::bytes raw, nb::handle allowed) const {
    if (!is(allowed.ptr(), limits_)) throw nb::type_error("the limits of bodies are expected");
    if (Py_ssize_t(raw.size()) > whole(set(most_bytes_, allowed.ptr()))) return nb::none();
    const nb::object body = nb::steal(PyObject_CallOneArg(read_.ptr(), raw.ptr()));
    if (body.is_valid()) return request(body, allowed);
    if (!PyErr_ExceptionMatches(PyExc_ValueError) && !PyErr_ExceptionMatches(PyExc_RecursionError)) throw nb::python_error();
    PyErr_Clear();  // msgspec's errors are ValueErrors
    return nb::none();
  }

  // The same of a body that was read.
  nb::object request(nb::handle given, nb::handle allowed) const {
    PyObject *body = given.ptr(), *limits = allowed.ptr();
    if (!is(body, plain_) || !is(limits, limits_)) throw nb::type_error("a plain body and its limits are expected");
    PyObject *longest = set(max_tokens_, body), *other = set(max_completion_tokens_, body), *stop = set(stop_, body);
    PyObject *stream = set(stream_, body), *options = set(stream_options_, body);
    if (other != Py_None) {
      if (longest != Py_None) return nb::none();
      longest = other;
    }
    if (longest != Py_None && !at_most(longest, set(most_tokens_, limits))) return nb::none();
    if (!has_temperature(set(temperature_, body), set(temperatures_, limits))) return nb::none();
    if (messages_ && !has_messages(set(*messages_, body), set(most_messages_, limits))) return nb::none();
    if (stop != Py_None && !may_stop(stop, limits)) return nb::none();
    if (options != Py_None && stream != Py_True) return nb::none();
    nb::object stops = no_stops_;
    if (stop != Py_None) stops = nb::make_tuple(nb::handle(stop));
    const nb::object sampling = sampling_of(body);
    PyObject* made[] = {route_.ptr(), set(model_, body), messages_ ? set(*messages_, body) : no_messages_.ptr(), prompt_ ? set(*prompt_, body) : no_prompt_.ptr(), sampling.ptr(), longest, stops.ptr(),
                        stream, includes_usage(options), set(ignore_eos_, body)};
    return call(request_, made, std::size(made));
  }

 private:
  static PyObject* set(const Slot& slot, PyObject* object) {
    PyObject* value = slot.of(object);
    if (!value) throw nb::type_error("a field was not set");
    return value;
  }

  static nb::object call(const nb::object& type, PyObject* const* given, size_t count) {
    PyObject* made = PyObject_Vectorcall(type.ptr(), given, count, nullptr);
    if (!made) throw nb::python_error();
    return nb::steal(made);
  }

  static bool at_most(PyObject* number, PyObject* most) {
    const int found = PyObject_RichCompareBool(number, most, Py_LE);
    if (found < 0) throw nb::python_error();
    return found;
  }

  static double real(PyObject* number) {
    const double value = PyFloat_AsDouble(number);
    if (value == -1.0 && PyErr_Occurred()) throw nb::python_error();
    return value;
  }

  static Py_ssize_t whole(PyObject* number) {
    const Py_ssize_t value = PyLong_AsSsize_t(number);
    if (value == -1 && PyErr_Occurred()) throw nb::python_error();
    return value;
  }

  static bool has_temperature(PyObject* temperature, PyObject* range) {
    if (!PyTuple_Check(range) || PyTuple_GET_SIZE(range) != 2) throw nb::type_error("temperatures have a least and a greatest");
    const double value = real(temperature);
    return real(PyTuple_GET_ITEM(range, 0)) <= value && value <= real(PyTuple_GET_ITEM(range, 1));
  }

  bool has_messages(PyObject* messages, PyObject* most) const {
    if (!PyTuple_Check(messages)) throw nb::type_error("messages are a tuple");
    if (PyTuple_GET_SIZE(messages) > whole(most)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(messages); i++) {
      PyObject* message = PyTuple_GET_ITEM(messages, i);
      if (!is(message, message_)) throw nb::type_error("a message is expected");
      if (!is_role(set(role_, message))) return false;
    }
    return true;
  }

  static bool is_role(PyObject* role) {
    Py_ssize_t size;
    const char* text = PyUnicode_AsUTF8AndSize(role, &size);
    if (!text) throw nb::python_error();
    const Bytes name(text, size_t(size));
    return name == "user" || name == "system" || name == "assistant";
  }

  bool may_stop(PyObject* stop, PyObject* limits) const {
    if (!PyUnicode_Check(stop)) throw nb::type_error("a stop is a text");
    const Py_ssize_t size = PyUnicode_GET_LENGTH(stop);
    return whole(set(most_stops_, limits)) && size >= 1 && size <= whole(set(longest_stop_, limits));
  }

  PyObject* includes_usage(PyObject* options) const {
    if (options == Py_None) return Py_False;
    if (!is(options, options_)) throw nb::type_error("options are expected");
    return set(include_usage_, options);
  }

  nb::object sampling_of(PyObject* body) const {
    std::array<PyObject*, 8> given;
    size_t count = 0;
    given[count++] = set(temperature_, body);
    for (const Slot& slot : further_sampling_) given[count++] = set(slot, body);
    return call(sampling_, given.data(), count);
  }

  const nb::object read_, plain_, route_, message_, options_, limits_, request_, sampling_;
  const Slot model_, max_tokens_, max_completion_tokens_, temperature_, stop_, stream_, stream_options_, ignore_eos_, role_, include_usage_, most_bytes_, most_messages_,
      most_tokens_, temperatures_, most_stops_, longest_stop_;
  std::optional<Slot> messages_, prompt_;  // a body has one of them
  std::vector<Slot> further_sampling_;  // after the temperature, in the order of Sampling's fields
  const nb::object no_messages_ = nb::steal(PyTuple_New(0)), no_stops_ = no_messages_, no_prompt_ = nb::str("");
};

}  // namespace zl
