// Memory that is taken once, at start: anonymous zero pages, 2 MB ones where the system gives them, never moved, freed together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <sys/mman.h>
#include <vector>

namespace zl {

class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    for (const Block& block : blocks_) munmap(block.base, block.bytes);
  }

  // `count` zeroed items on a cache line of their own. Throws std::runtime_error where the system has no memory left.
  template <class T>
  T* take(size_t count) {
    const size_t bytes = (count * sizeof(T) + kSlack + kLine - 1) / kLine * kLine;
    if (left_ < bytes) {
      if (bytes >= kChunk / 2) return reinterpret_cast<T*>(map(bytes));  // a block of its own: what is left of the last one is still of use
      next_ = map(kChunk);
      left_ = kChunk;
    }
    void* taken = next_;
    next_ += bytes;
    left_ -= bytes;
    return static_cast<T*>(taken);
  }

  size_t bytes() const { return bytes_; }
  size_t huge_bytes() const { return huge_bytes_; }  // for which the system accepted the wish for 2 MB pages
  struct Block { void* base; size_t bytes; };
  const std::vector<Block>& blocks() const { return blocks_; }

 private:
  static constexpr size_t kHuge = size_t(2) << 20, kChunk = size_t(32) << 20, kLine = 64;
  static constexpr size_t kSlack = 256;  // loads of 16 lanes run past the end of a buffer

  // A block of at least so many bytes.
  char* map(size_t at_least) {
    const size_t bytes = (at_least + kHuge - 1) / kHuge * kHuge;
    char* base = static_cast<char*>(mmap(nullptr, bytes + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base == MAP_FAILED) throw std::runtime_error("out of memory");
    const size_t before = (kHuge - reinterpret_cast<uintptr_t>(base) % kHuge) % kHuge;
    if (before) munmap(base, before);
    if (kHuge - before) munmap(base + before + bytes, kHuge - before);
    char* block = base + before;
    blocks_.push_back({block, bytes});
    bytes_ += bytes;
#if defined(MADV_HUGEPAGE)
    if (madvise(block, bytes, MADV_HUGEPAGE) == 0) huge_bytes_ += bytes;
#endif
    return block;
  }

  std::vector<Block> blocks_;
  char* next_ = nullptr;
  size_t left_ = 0, bytes_ = 0, huge_bytes_ = 0;
};

}  // namespace zl
