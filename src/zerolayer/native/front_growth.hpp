// What a step's plain tokens become: the same that front/stream.py and what it calls make of them, for all streams in one call. Included
// by front_module.cpp only, as it knows Python: attributes are read where __slots__ has put them, since by name they would cost as much as
// all the rest.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "front_chunk.hpp"
#include "front_slot.hpp"
#include "wire_bytes.hpp"

namespace zl {

namespace nb = nanobind;

constexpr size_t kFrameHeader = 9;  // RFC 9113 section 4.1

inline int64_t number(PyObject* value) { return value && PyLong_Check(value) ? PyLong_AsLongLong(value) : -1; }
inline nb::object number(int64_t value) { return nb::steal(PyLong_FromLongLong(value)); }
inline size_t bytes_in(PyObject* value) { return size_t(PyBytes_GET_SIZE(value)); }

// Whatever went wrong, the token goes the usual way, where it is told.
inline bool unusual() {
  PyErr_Clear();
  return false;
}

// Of the types in `types`, by the names of their classes. Raises TypeError where one of them has no such slot.
class Growth {
 public:
  explicit Growth(nb::dict types)
      : token_(types["SampledToken"]), slot_(token_, "slot"), id_(token_, "token_id"), finish_(token_, "finish"), logprob_(token_, "logprob"),
        broken_(token_, "broken"), prompt_(token_, "prompt"), line_(types["Line"]), known_(line_, "known"), render_(line_, "render"),
        before_(line_, "before"), after_(line_, "after"), transcript_(line_, "transcript"), decoder_(line_, "decoder"),
        outlet_(line_, "outlet"), gap_ns_(line_, "gap_ns"), last_ns_(line_, "last_ns"), counted_(types["Transcript"]),
        count_(counted_, "completion_tokens"), last_id_(counted_, "token_id"), decodes_(types["Decoder"]), partial_(decodes_, "partial"),
        socket_(types["SocketOutlet"]), chunked_(socket_, "chunked"), clear_(socket_, "clear"), descriptor_(socket_, "descriptor"),
        writer_(socket_, "writer"), frames_(types["FrameOutlet"]), connection_(frames_, "connection"), sender_(frames_, "sender"),
        stream_(frames_, "stream"), sends_(types["Sender"]), held_(sends_, "held"), all_window_(sends_, "window"), out_(sends_, "out"),
        out_bytes_(sends_, "out_bytes"), streams_(types["Stream"]), stream_id_(streams_, "id"), pending_(streams_, "pending"),
        window_(streams_, "window"), sent_bytes_(streams_, "sent_bytes"), scheduled_(nb::steal(PyUnicode_InternFromString("scheduled"))),
        wake_(nb::steal(PyUnicode_InternFromString("wake"))) {}

  // As _native.pyi has it.
  nb::tuple grow(nb::sequence tokens, nb::list lines, int64_t ended_ns) const {
    Step step{lines, ended_ns, number(ended_ns), 0, {}, {}, {}};
    nb::list rest;
    nb::object all = nb::steal(PySequence_Fast(tokens.ptr(), "a sequence of tokens"));
    if (!all.is_valid()) throw nb::python_error();
    fetch(all.ptr(), lines.ptr());
    for (Py_ssize_t place = 0; place < PySequence_Fast_GET_SIZE(all.ptr()); place++) {
      nb::object token = nb::borrow(PySequence_Fast_GET_ITEM(all.ptr(), place));
      if (!takes(token.ptr(), step)) rest.append(token);
    }
    return nb::make_tuple(rest, step.late, step.writers, step.descriptors, step.pieces);
  }

 private:
  struct Step {
    nb::list lines;
    int64_t ended_ns;
    nb::object ended;
    int late;  // tokens that came later after the last one than their clients allow
    nb::list writers, descriptors, pieces;
  };

  // Words lie all over a vocabulary: they are asked for together, so that the processor waits for all of them once.
  void fetch(PyObject* tokens, PyObject* lines) const {
    for (const bool words : {false, true})
      for (Py_ssize_t place = 0; place < PySequence_Fast_GET_SIZE(tokens); place++) {
        PyObject* token = PySequence_Fast_GET_ITEM(tokens, place);
        if (!is(token, token_)) continue;
        const int64_t slot = number(slot_.of(token)), id = number(id_.of(token));
        if (slot < 0 || slot >= PyList_GET_SIZE(lines) || !is(PyList_GET_ITEM(lines, slot), line_)) continue;
        PyObject* known = known_.of(PyList_GET_ITEM(lines, slot));
        if (id < 0 || !known || !PyList_Check(known) || id >= PyList_GET_SIZE(known)) continue;
        PyObject** item = &reinterpret_cast<PyListObject*>(known)->ob_item[id];
        __builtin_prefetch(words ? static_cast<void*>(*item) : static_cast<void*>(item));
      }
  }

  static bool is(PyObject* object, const nb::object& type) { return object && Py_TYPE(object) == reinterpret_cast<PyTypeObject*>(type.ptr()); }

  // Whether nothing is to be done for the token but to show its text.
  bool plain(PyObject* token) const {
    PyObject* prompt = prompt_.of(token);
    return finish_.of(token) == Py_None && logprob_.of(token) == Py_None && broken_.of(token) == Py_False && prompt && PyTuple_Check(prompt) &&
           !PyTuple_GET_SIZE(prompt);
  }

  bool takes(PyObject* token, Step& step) const {
    if (!is(token, token_) || !plain(token)) return false;
    const int64_t slot = number(slot_.of(token));
    if (slot < 0 || size_t(slot) >= step.lines.size()) return false;
    nb::object line = nb::borrow(PyList_GET_ITEM(step.lines.ptr(), slot));
    if (!is(line.ptr(), line_) || !sound(line.ptr()) || partial_.of(decoder_.of(line.ptr())) != Py_None) return false;
    nb::object word = word_of(line.ptr(), id_.of(token));
    if (!word.is_valid()) return false;
    nb::object outlet = nb::borrow(outlet_.of(line.ptr()));
    if (bytes_in(word.ptr())) {
      const bool socket = is(outlet.ptr(), socket_);
      if (!(socket ? into_socket(line.ptr(), outlet.ptr(), word.ptr(), step) : into_frames(line.ptr(), outlet.ptr(), word.ptr()))) return false;
    }
    count(line.ptr(), token, step);
    return true;
  }

  // Whether it holds what it should: no other object may be read at the places of these.
  bool sound(PyObject* line) const {
    PyObject *before = before_.of(line), *after = after_.of(line), *outlet = outlet_.of(line);
    if (!is(decoder_.of(line), decodes_) || !is(transcript_.of(line), counted_)) return false;
    if (!before || !after || !PyBytes_Check(before) || !PyBytes_Check(after)) return false;
    if (is(outlet, socket_)) return clear_.of(outlet) && writer_.of(outlet) && descriptor_.of(outlet);
    if (!is(outlet, frames_) || !is(sender_.of(outlet), sends_) || !is(stream_.of(outlet), streams_)) return false;
    PyObject* out = out_.of(sender_.of(outlet));
    return connection_.of(outlet) && out && PyList_Check(out);
  }

  // What is shown of the token; invalid where that depends on what comes next.
  nb::object word_of(PyObject* line, PyObject* id) const {
    PyObject* known = known_.of(line);
    const int64_t place = number(id);
    if (place < 0 || !known || !PyList_Check(known) || place >= PyList_GET_SIZE(known)) return {};
    PyObject* word = PyList_GET_ITEM(known, place);
    if (word != Py_None) return PyBytes_Check(word) ? nb::borrow(word) : nb::object();
    nb::object made = render_.of(line) ? nb::steal(PyObject_CallOneArg(render_.of(line), id)) : nb::object();
    if (!made.is_valid()) unusual();
    return made.is_valid() && PyBytes_Check(made.ptr()) ? made : nb::object();
  }

  bool into_socket(PyObject* line, PyObject* outlet, PyObject* word, Step& step) const {
    nb::object clear = nb::steal(PyObject_CallNoArgs(clear_.of(outlet)));
    if (!clear.is_valid()) return unusual();
    if (clear.ptr() != Py_True) return false;
    PyObject *before = before_.of(line), *after = after_.of(line);
    const size_t size = bytes_in(before) + bytes_in(word) + bytes_in(after);
    char line_of_size[18];
    size_t digits = 0;
    const bool chunked = chunked_.of(outlet) == Py_True;
    if (chunked) {
      digits = size_digits(size, line_of_size);
      line_of_size[digits++] = '\r';
      line_of_size[digits++] = '\n';
    }
    nb::object piece = nb::steal(PyBytes_FromStringAndSize(nullptr, Py_ssize_t(digits + size + (chunked ? 2 : 0))));
    if (!piece.is_valid()) return unusual();
    char* to = PyBytes_AS_STRING(piece.ptr());
    std::memcpy(to, line_of_size, digits);
    to = put(put(put(to + digits, before), word), after);
    if (chunked) std::memcpy(to, "\r\n", 2);
    step.writers.append(nb::borrow(writer_.of(outlet)));
    step.descriptors.append(nb::borrow(descriptor_.of(outlet)));
    step.pieces.append(piece);
    return true;
  }

  // One DATA frame, where both windows have room for it and nothing waits before it (RFC 9113 section 6.9).
  bool into_frames(PyObject* line, PyObject* outlet, PyObject* word) const {
    PyObject *sender = sender_.of(outlet), *stream = stream_.of(outlet), *before = before_.of(line), *after = after_.of(line);
    const size_t size = bytes_in(before) + bytes_in(word) + bytes_in(after);
    const int64_t window = number(window_.of(stream)), all = number(all_window_.of(sender)), id = number(stream_id_.of(stream));
    if (held_.of(sender) != Py_False || pending_.of(stream) != Py_None || id < 0) return false;
    if (int64_t(size) > window || int64_t(size) > all || size > kFrameBytes) return false;
    nb::object frame = nb::steal(PyBytes_FromStringAndSize(nullptr, Py_ssize_t(kFrameHeader + size)));
    if (!frame.is_valid()) return unusual();
    char* to = PyBytes_AS_STRING(frame.ptr());
    const char header[kFrameHeader] = {char(size >> 16), char(size >> 8), char(size), 0, 0, char(id >> 24), char(id >> 16), char(id >> 8), char(id)};
    std::memcpy(to, header, kFrameHeader);
    put(put(put(to + kFrameHeader, before), word), after);
    if (!awake(connection_.of(outlet)) || PyList_Append(out_.of(sender), frame.ptr())) return unusual();
    window_.set(stream, number(window - int64_t(size)));
    all_window_.set(sender, number(all - int64_t(size)));
    sent_bytes_.set(stream, number(number(sent_bytes_.of(stream)) + int64_t(size)));
    out_bytes_.set(sender, number(number(out_bytes_.of(sender)) + int64_t(size)));
    return true;
  }

  // The connection writes in the next turn of the loop.
  bool awake(PyObject* connection) const {
    nb::object scheduled = nb::steal(PyObject_GetAttr(connection, scheduled_.ptr()));
    if (!scheduled.is_valid()) return false;
    return scheduled.ptr() == Py_True || nb::steal(PyObject_CallMethodNoArgs(connection, wake_.ptr())).is_valid();
  }

  static char* put(char* to, PyObject* bytes) {
    std::memcpy(to, PyBytes_AS_STRING(bytes), bytes_in(bytes));
    return to + bytes_in(bytes);
  }

  void count(PyObject* line, PyObject* token, Step& step) const {
    PyObject* transcript = transcript_.of(line);
    count_.set(transcript, number(number(count_.of(transcript)) + 1));
    last_id_.set(transcript, nb::borrow(id_.of(token)));
    if (step.ended_ns - number(last_ns_.of(line)) > number(gap_ns_.of(line))) step.late++;
    last_ns_.set(line, step.ended);
  }

  const nb::object token_;
  const Slot slot_, id_, finish_, logprob_, broken_, prompt_;
  const nb::object line_;
  const Slot known_, render_, before_, after_, transcript_, decoder_, outlet_, gap_ns_, last_ns_;
  const nb::object counted_;
  const Slot count_, last_id_;
  const nb::object decodes_;
  const Slot partial_;
  const nb::object socket_;
  const Slot chunked_, clear_, descriptor_, writer_;
  const nb::object frames_;
  const Slot connection_, sender_, stream_;
  const nb::object sends_;
  const Slot held_, all_window_, out_, out_bytes_;
  const nb::object streams_;
  const Slot stream_id_, pending_, window_, sent_bytes_;
  const nb::object scheduled_, wake_;
};

}  // namespace zl
