// Many sends in one system call, where the kernel has io_uring (io_uring(7)) and lets us: to enter and leave it for each of 128
// sockets takes a tenth of what they cost.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "front_sends.hpp"

#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#endif

namespace zl {

#ifdef IORING_FEAT_FAST_POLL  // what is needed here, and was there when that came (Linux 5.7)

// One thread uses it at a time.
class Ring {
 public:
  Ring() { open(); }  // at the start: later nothing is taken
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() { close(); }

  // As send_each, which does it where this cannot.
  void send_each(Piece* pieces, size_t count) {
    size_t done = 0;
    while (ring_ >= 0 && done < count) {
      const size_t some = std::min(count - done, size_t(kEntries));
      const size_t taken = submit(pieces + done, some);
      done += taken;
      if (taken < some) close();  // never again
    }
    zl::send_each(pieces + done, count - done);
  }

 private:
  static constexpr unsigned kEntries = 128;

  void open() {
    io_uring_params params{};
    ring_ = int(syscall(__NR_io_uring_setup, kEntries, &params));
    if (ring_ < 0) return;
    constexpr unsigned needed = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_FAST_POLL;
    if ((params.features & needed) != needed || params.sq_entries < kEntries) return close();
    rings_bytes_ = std::max<size_t>(params.sq_off.array + params.sq_entries * sizeof(unsigned), params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
    entries_bytes_ = params.sq_entries * sizeof(io_uring_sqe);
    rings_ = map(rings_bytes_, IORING_OFF_SQ_RING);
    entries_ = static_cast<io_uring_sqe*>(map(entries_bytes_, IORING_OFF_SQES));
    if (!rings_ || !entries_) return close();
    tail_ = word(params.sq_off.tail), head_ = word(params.sq_off.head), mask_ = *word(params.sq_off.ring_mask), array_ = word(params.sq_off.array);
    done_head_ = word(params.cq_off.head), done_tail_ = word(params.cq_off.tail), done_mask_ = *word(params.cq_off.ring_mask);
    results_ = reinterpret_cast<io_uring_cqe*>(static_cast<char*>(rings_) + params.cq_off.cqes);
  }

  void* map(size_t bytes, off_t what) const {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_, what);
    return at == MAP_FAILED ? nullptr : at;
  }
  unsigned* word(unsigned offset) const { return reinterpret_cast<unsigned*>(static_cast<char*>(rings_) + offset); }

  void close() {
    if (rings_) munmap(rings_, rings_bytes_);
    if (entries_) munmap(entries_, entries_bytes_);
    if (ring_ >= 0) ::close(ring_);
    rings_ = nullptr, entries_ = nullptr, ring_ = -1;
  }

  // How many of the pieces were offered, from the first one on: each was when this returns.
  size_t submit(Piece* pieces, size_t count) {
    const unsigned first = *tail_;
    for (size_t place = 0; place < count; place++) {
      const unsigned at = (first + unsigned(place)) & mask_;
      io_uring_sqe& entry = entries_[at];
      std::memset(&entry, 0, sizeof entry);
      entry.opcode = IORING_OP_SEND;
      entry.fd = pieces[place].descriptor;
      entry.addr = reinterpret_cast<uint64_t>(pieces[place].data);
      entry.len = unsigned(pieces[place].bytes);
      entry.msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL;
      entry.user_data = place;
      array_[at] = at;
    }
    std::atomic_ref(*tail_).store(first + unsigned(count), std::memory_order_release);
    size_t taken = 0, answered = 0;
    while (answered < count) {
      const long entered = syscall(__NR_io_uring_enter, ring_, unsigned(count - taken), unsigned(count - answered), IORING_ENTER_GETEVENTS, nullptr, 0);
      if (entered > 0) taken += size_t(entered);
      answered += collect(pieces);
      if (entered < 0 && errno != EINTR && taken == answered) break;
    }
    return taken;
  }

  // How many answers there were.
  size_t collect(Piece* pieces) const {
    const unsigned until = std::atomic_ref(*done_tail_).load(std::memory_order_acquire);
    unsigned at = *done_head_;
    const size_t found = until - at;
    for (; at != until; at++) {
      const io_uring_cqe& result = results_[at & done_mask_];
      if (result.res > 0) pieces[result.user_data].sent = size_t(result.res);
    }
    std::atomic_ref(*done_head_).store(until, std::memory_order_release);
    return found;
  }

  int ring_ = -1;
  void* rings_ = nullptr;
  io_uring_sqe* entries_ = nullptr;
  size_t rings_bytes_ = 0, entries_bytes_ = 0;
  unsigned *tail_ = nullptr, *head_ = nullptr, *array_ = nullptr, *done_head_ = nullptr, *done_tail_ = nullptr;
  unsigned mask_ = 0, done_mask_ = 0;
  io_uring_cqe* results_ = nullptr;
};

#else

class Ring {
 public:
  void send_each(Piece* pieces, size_t count) { zl::send_each(pieces, count); }
};

#endif

}  // namespace zl
