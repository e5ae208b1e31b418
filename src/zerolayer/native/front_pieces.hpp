// The pieces of a step, one for each connection that got tokens, until they are sent. The buffers are those of the step before: nothing is
// taken from the allocator.
#pragma once

#include <nanobind/nanobind.h>

#include <cstring>
#include <string>
#include <vector>

#include "front_sends.hpp"

namespace zl {

namespace nb = nanobind;

constexpr size_t kKeptBytes = 4096;  // of a buffer; a larger one was an exception

struct Parcel {
  nb::object outlet;  // a socket's, or one of those of an HTTP/2 connection
  bool frames;
  std::string bytes;
};

class Parcels {
 public:
  // The place of a new one; places are good until `clear`.
  size_t add(nb::object outlet, bool frames) {
    if (used_ == all_.size()) all_.emplace_back();
    Parcel& parcel = all_[used_];
    parcel.outlet = std::move(outlet);
    parcel.frames = frames;
    return used_++;
  }
  size_t size() const { return used_; }
  Parcel& operator[](size_t place) { return all_[place]; }
  void clear() {
    for (size_t place = 0; place < used_; place++) {
      Parcel& parcel = all_[place];
      parcel.outlet.reset();
      parcel.bytes.clear();
      if (parcel.bytes.capacity() > kKeptBytes) parcel.bytes.shrink_to_fit();
    }
    used_ = 0;
  }

 private:
  std::vector<Parcel> all_;
  size_t used_ = 0;
};

}  // namespace zl
