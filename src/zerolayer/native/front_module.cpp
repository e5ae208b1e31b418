// The Python face of what the door does for all streams of a step: zerolayer.front._native. Called on the loop only; nothing here waits.
#include <nanobind/nanobind.h>

#include <vector>

#include "front_growth.hpp"
#include "front_sends.hpp"
#include "numbers.hpp"

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

}  // namespace

NB_MODULE(_native, m) {
  zl::add_numbers(m, "LineNumbers", line_numbers);
  zl::add_numbers(m, "TranscriptNumbers", transcript_numbers);
  zl::add_numbers(m, "SocketNumbers", socket_numbers);
  m.def("send_each", &send_each, nb::arg(), nb::arg(), nb::arg() = true);
  nb::class_<zl::Growth>(m, "Growth", nb::is_final()).def(nb::init<nb::dict>()).def("grow", &zl::Growth::grow).def("send", &zl::Growth::send);
}
