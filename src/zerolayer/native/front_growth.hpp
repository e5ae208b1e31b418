// What a step's plain tokens become: the same that front/stream.py and what it calls make of them, for all streams in one call. Included
// by front_module.cpp only, as it knows Python.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "front_chunk.hpp"
#include "front_pieces.hpp"
#include "front_ring.hpp"
#include "front_slots.hpp"
#include "wire_bytes.hpp"

namespace zl {

constexpr size_t kLine = 64;  // bytes that a processor fetches together

// Of the types in `types`, by the names of their classes. Raises TypeError where one of them has no such attribute at a fixed place.
class Growth {
 public:
  explicit Growth(nb::dict types)
      : token_(types["SampledToken"]), slot_(token_, "slot"), id_(token_, "token_id"), finish_(token_, "finish"), logprob_(token_, "logprob"),
        broken_(token_, "broken"), prompt_(token_, "prompt"), line_(types["Line"]), known_(line_, "known"), render_(line_, "render"),
        before_(line_, "before"), after_(line_, "after"), transcript_(line_, "transcript"), decoder_(line_, "decoder"),
        outlet_(line_, "outlet"), gap_ns_(line_, "gap_ns"), last_ns_(line_, "last_ns"), counted_(types["Transcript"]),
        count_(counted_, "completion_tokens"), last_id_(counted_, "token_id"), decodes_(types["Decoder"]), partial_(decodes_, "partial"),
        socket_(types["SocketOutlet"]), chunked_(socket_, "chunked"), sure_(socket_, "sure"), descriptor_(socket_, "descriptor"),
        clear_(socket_, "clear"), writer_(socket_, "writer"), frames_(types["FrameOutlet"]), connection_(frames_, "connection"),
        sender_(frames_, "sender"), stream_(frames_, "stream"), sends_(types["Sender"]), held_(sends_, "held"), out_(sends_, "out"),
        all_window_(sends_, "window"), out_bytes_(sends_, "out_bytes"), place_(sends_, "place"), free_(sends_, "free"), streams_(types["Stream"]),
        pending_(streams_, "pending"), stream_id_(streams_, "id"), window_(streams_, "window"), sent_bytes_(streams_, "sent_bytes"),
        free_descriptor_(nb::steal(PyUnicode_InternFromString("free_descriptor"))) {}

  // As _native.pyi has it.
  nb::tuple grow(nb::sequence tokens, nb::list lines, int64_t ended_ns) {
    nb::list rest;
    nb::object all = nb::steal(PySequence_Fast(tokens.ptr(), "a sequence of tokens"));
    if (!all.is_valid()) throw nb::python_error();
    late_ = 0;
    fetch(all.ptr(), lines.ptr());
    for (Py_ssize_t place = 0; place < PySequence_Fast_GET_SIZE(all.ptr()); place++) {
      nb::object token = nb::borrow(PySequence_Fast_GET_ITEM(all.ptr(), place));
      nb::object line = line_of(token.ptr(), lines.ptr());
      if (!line.is_valid() || !takes(line.ptr(), token.ptr(), ended_ns)) {
        if (line.is_valid()) doubt(line.ptr());
        rest.append(token);
      }
    }
    return nb::make_tuple(rest, late_);
  }

  // As _native.pyi has it.
  nb::tuple send(size_t many, size_t together) {
    nb::list left, waiting;
    sends_now_.clear();
    for (size_t place = 0; place < parcels_.size(); place++) {
      Parcel& parcel = parcels_[place];
      const int descriptor = parcel.frames ? frames_descriptor(parcel.outlet.ptr()) : int(descriptor_.of(parcel.outlet.ptr()));
      if (descriptor >= 0) sends_now_.push_back({descriptor, parcel.bytes.data(), parcel.bytes.size(), 0, place});
      else if (parcel.frames) waiting.append(behind(parcel));
    }
    if (sends_now_.size() >= many) {
      nb::gil_scoped_release others;
      offer(together);
    } else {
      offer(together);
    }
    for (const Piece& piece : sends_now_)
      if (piece.sent < piece.bytes) left.append(left_of(piece));
    parcels_.clear();
    return nb::make_tuple(left, waiting);
  }

 private:
  // Whatever went wrong, the token goes the usual way, where it is told.
  static bool unusual() {
    PyErr_Clear();
    return false;
  }

  // What is read of a step's tokens lies all over the memory: it is asked for together, so that the processor waits for all of it once, and
  // not at each pointer of each token. Only what was asked for in a round before is looked at.
  void fetch(PyObject* tokens, PyObject* lines) const {
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(tokens);
    for (Py_ssize_t place = 0; place < count; place++) __builtin_prefetch(PySequence_Fast_GET_ITEM(tokens, place));
    for (Py_ssize_t place = 0; place < count; place++)
      if (PyObject* line = found(PySequence_Fast_GET_ITEM(tokens, place), lines)) near(line, line_size_);
    for (Py_ssize_t place = 0; place < count; place++) {
      PyObject* token = PySequence_Fast_GET_ITEM(tokens, place);
      PyObject* line = found(token, lines);
      if (!is(line, line_)) continue;
      for (const Slot* each : {&transcript_, &decoder_, &outlet_}) near(each->of(line), kLine);
      if (PyObject** word = word_at(line, number(id_.of(token)))) __builtin_prefetch(word);
    }
    for (Py_ssize_t place = 0; place < count; place++) {
      PyObject* token = PySequence_Fast_GET_ITEM(tokens, place);
      PyObject* line = found(token, lines);
      if (!is(line, line_)) continue;
      if (PyObject** word = word_at(line, number(id_.of(token)))) near(*word, kLine);
      PyObject* outlet = outlet_.of(line);
      if (is(outlet, frames_)) near(stream_.of(outlet), stream_size_);
    }
  }

  static void near(PyObject* object, size_t size) {
    for (size_t at = 0; object && at < size; at += kLine) __builtin_prefetch(reinterpret_cast<char*>(object) + at);
  }

  // What stands at the token's slot; null where nothing does.
  PyObject* found(PyObject* token, PyObject* lines) const {
    const int64_t slot = is(token, token_) ? number(slot_.of(token)) : -1;
    return slot >= 0 && slot < PyList_GET_SIZE(lines) ? PyList_GET_ITEM(lines, slot) : nullptr;
  }

  // Where the word of a token stands; null where it has no place.
  PyObject** word_at(PyObject* line, int64_t id) const {
    PyObject* known = known_.of(line);
    if (id < 0 || !known || !PyList_Check(known) || id >= PyList_GET_SIZE(known)) return nullptr;
    return &reinterpret_cast<PyListObject*>(known)->ob_item[id];
  }

  // Invalid where the token's slot has none.
  nb::object line_of(PyObject* token, PyObject* lines) const {
    PyObject* line = found(token, lines);
    return is(line, line_) ? nb::borrow(line) : nb::object();
  }

  // Whether nothing is to be done for the token but to show its text.
  bool plain(PyObject* token) const {
    PyObject* prompt = prompt_.of(token);
    return finish_.of(token) == Py_None && logprob_.of(token) == Py_None && broken_.of(token) == Py_None && prompt && PyTuple_Check(prompt) &&
           !PyTuple_GET_SIZE(prompt);
  }

  bool takes(PyObject* line, PyObject* token, int64_t ended_ns) {
    if (!plain(token) || !sound(line) || partial_.of(decoder_.of(line)) != Py_None) return false;
    const int64_t id = number(id_.of(token));
    nb::object word = word_of(line, id);
    if (!word.is_valid()) return false;
    if (bytes_in(word.ptr())) {
      nb::object outlet = nb::borrow(outlet_.of(line));
      if (!(is(outlet.ptr(), socket_) ? into_socket(line, outlet, word.ptr()) : into_frames(line, outlet, word.ptr()))) return false;
    }
    PyObject* transcript = transcript_.of(line);
    count_.of(transcript)++;
    last_id_.of(transcript) = id;
    if (ended_ns - last_ns_.of(line) > gap_ns_.of(line)) late_++;
    last_ns_.of(line) = ended_ns;
    return true;
  }

  // Whether it holds what it should: no other object may be read at the places of these.
  bool sound(PyObject* line) const {
    PyObject *before = before_.of(line), *after = after_.of(line), *outlet = outlet_.of(line);
    if (!is(decoder_.of(line), decodes_) || !is(transcript_.of(line), counted_)) return false;
    if (!before || !after || !PyBytes_Check(before) || !PyBytes_Check(after)) return false;
    if (is(outlet, socket_)) return clear_.of(outlet) && writer_.of(outlet);
    if (!is(outlet, frames_) || !is(sender_.of(outlet), sends_) || !is(stream_.of(outlet), streams_)) return false;
    PyObject* out = out_.of(sender_.of(outlet));
    return connection_.of(outlet) && out && PyList_Check(out);
  }

  // What is shown of the token; invalid where that depends on what comes next.
  nb::object word_of(PyObject* line, int64_t id) const {
    PyObject** word = word_at(line, id);
    if (!word) return {};
    if (*word != Py_None) return PyBytes_Check(*word) ? nb::borrow(*word) : nb::object();
    nb::object number = nb::steal(PyLong_FromLongLong(id));
    nb::object made = render_.of(line) && number.is_valid() ? nb::steal(PyObject_CallOneArg(render_.of(line), number.ptr())) : nb::object();
    if (!made.is_valid()) unusual();
    return made.is_valid() && PyBytes_Check(made.ptr()) ? made : nb::object();
  }

  // A piece of its own, where nothing that was written waits before it. That is asked once: as long as the kernel takes all and every token
  // comes this way, nothing can.
  bool into_socket(PyObject* line, nb::object outlet, PyObject* word) {
    if (!sure_.of(outlet.ptr())) {
      nb::object clear = nb::steal(PyObject_CallNoArgs(clear_.of(outlet.ptr())));
      if (!clear.is_valid()) return unusual();
      if (clear.ptr() != Py_True) return false;
      sure_.of(outlet.ptr()) = 1;
    }
    const bool chunked = chunked_.of(outlet.ptr());
    std::string& bytes = parcels_[parcels_.add(outlet, false)].bytes;
    if (chunked) {
      char digits[16];
      bytes.append(digits, size_digits(size_of(line, word), digits));
      bytes.append("\r\n", 2);
    }
    put(bytes, line, word);
    if (chunked) bytes.append("\r\n", 2);
    return true;
  }

  // A DATA frame among those of its connection, where both windows have room for it and nothing waits before it (RFC 9113 section 6.9).
  bool into_frames(PyObject* line, nb::object outlet, PyObject* word) {
    PyObject *sender = sender_.of(outlet.ptr()), *stream = stream_.of(outlet.ptr());
    const int64_t size = int64_t(size_of(line, word)), id = stream_id_.of(stream);
    int64_t &window = window_.of(stream), &all = all_window_.of(sender), &place = place_.of(sender);
    if (held_.of(sender) != Py_False || pending_.of(stream) != Py_None) return false;
    if (size > window || size > all || size > int64_t(kFrameBytes)) return false;
    if (!place) place = int64_t(parcels_.add(outlet, true)) + 1;
    char header[kFrameHeaderBytes];
    put_frame_header(header, size_t(size), kData, 0, uint32_t(id));
    std::string& bytes = parcels_[size_t(place) - 1].bytes;
    bytes.append(header, kFrameHeaderBytes);
    put(bytes, line, word);
    window -= size;
    all -= size;
    sent_bytes_.of(stream) += size;
    return true;
  }

  size_t size_of(PyObject* line, PyObject* word) const { return bytes_in(before_.of(line)) + bytes_in(word) + bytes_in(after_.of(line)); }

  void put(std::string& to, PyObject* line, PyObject* word) const {
    for (PyObject* each : {before_.of(line), word, after_.of(line)}) to.append(PyBytes_AS_STRING(each), bytes_in(each));
  }

  // The token goes another way, on which its connection may come to wait.
  void doubt(PyObject* line) const {
    PyObject* outlet = outlet_.of(line);
    if (is(outlet, socket_)) sure_.of(outlet) = 0;
  }

  // Where the frames of a connection may go now; -1 where something is before them. That is asked once, until the connection writes in
  // another way, is told that it may not, or the kernel does not take all.
  int frames_descriptor(PyObject* outlet) {
    PyObject* sender = sender_.of(outlet);
    place_.of(sender) = 0;
    if (PyList_GET_SIZE(out_.of(sender))) return -1;
    int64_t& free = free_.of(sender);
    if (!free) {
      nb::object found = nb::steal(PyObject_CallMethodNoArgs(connection_.of(outlet), free_descriptor_.ptr()));
      if (!found.is_valid()) unusual();
      free = found.is_valid() ? number(found.ptr()) + 1 : 0;
    }
    return int(free) - 1;
  }

  void offer(size_t together) {
    if (sends_now_.size() < together) send_each(sends_now_.data(), sends_now_.size());
    else ring_.send_each(sends_now_.data(), sends_now_.size());
  }

  // Leave the frames to their connection; returns it.
  nb::object behind(const Parcel& parcel) const {
    PyObject* sender = sender_.of(parcel.outlet.ptr());
    nb::list(nb::borrow<nb::list>(out_.of(sender))).append(nb::bytes(parcel.bytes.data(), parcel.bytes.size()));
    out_bytes_.of(sender) += int64_t(parcel.bytes.size());
    return nb::borrow(connection_.of(parcel.outlet.ptr()));
  }

  // Whose the rest of a piece is, and the rest.
  nb::tuple left_of(const Piece& piece) {
    const Parcel& parcel = parcels_[piece.place];
    PyObject* outlet = parcel.outlet.ptr();
    (parcel.frames ? free_.of(sender_.of(outlet)) : sure_.of(outlet)) = 0;
    nb::object writer = nb::borrow(parcel.frames ? connection_.of(outlet) : writer_.of(outlet));
    return nb::make_tuple(writer, nb::bytes(piece.data + piece.sent, piece.bytes - piece.sent));
  }

  int late_ = 0;  // tokens of this step that came later after the last one than their clients allow
  Parcels parcels_;
  Ring ring_;
  std::vector<Piece> sends_now_;

  const nb::object token_;
  const Slot slot_, id_, finish_, logprob_, broken_, prompt_;
  const nb::object line_;
  const Slot known_, render_, before_, after_, transcript_, decoder_, outlet_;
  const size_t line_size_ = size_t(reinterpret_cast<PyTypeObject*>(line_.ptr())->tp_basicsize);
  const Number gap_ns_, last_ns_;
  const nb::object counted_;
  const Number count_, last_id_;
  const nb::object decodes_;
  const Slot partial_;
  const nb::object socket_;
  const Number chunked_, sure_, descriptor_;
  const Slot clear_, writer_;
  const nb::object frames_;
  const Slot connection_, sender_, stream_;
  const nb::object sends_;
  const Slot held_, out_;
  const Number all_window_, out_bytes_, place_, free_;
  const nb::object streams_;
  const Slot pending_;
  const Number stream_id_, window_, sent_bytes_;
  const size_t stream_size_ = size_t(reinterpret_cast<PyTypeObject*>(streams_.ptr())->tp_basicsize);
  const nb::object free_descriptor_;
};

}  // namespace zl
