// How fast the machine is now, and how much longer than usual the longest steps take. Pure: no clock, no Python.
//
// A neighbour on the same host, heat or a lowered clock make all steps longer, for seconds or for good. Each step votes with its ratio to
// what its kind normally takes. The pace rises after five slow steps of seventeen, falls after thirteen quick ones, and takes no notice of
// single ones: those are in the mean. What its kind normally takes is learned from a step's time over the pace of its neighbours, where
// that is a quarter off what the machine is used to: less than that has other reasons too, such as longer contexts, which differ by kind.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace zl {

// The last `kMost` values, oldest first.
template <class T, size_t kMost>
class Last {
 public:
  size_t size() const { return size_; }
  bool full() const { return size_ == kMost; }
  T operator[](size_t place) const { return values_[(first_ + place) % kMost]; }
  void push(T value) {
    values_[(first_ + size_) % kMost] = value;
    if (full()) first_ = (first_ + 1) % kMost;
    else size_++;
  }
  void pop() {
    first_ = (first_ + 1) % kMost;
    size_--;
  }
  void clear() { first_ = size_ = 0; }
  // Those from `begin` to before `end`, in rising order.
  void sorted(size_t begin, size_t end, T* out) const {
    for (size_t place = begin; place < end; place++) out[place - begin] = (*this)[place];
    std::sort(out, out + (end - begin));
  }

 private:
  T values_[kMost] = {};
  size_t first_ = 0, size_ = 0;
};

constexpr size_t kAfter = 4;     // votes before a step, or after it, that say with it what the pace was then
constexpr double kFreak = 30.0;  // a step that took longer than so many says nothing about the others

// `now`: how many times longer than normal a step typically takes; `mean`: the same with all outliers.
//
// Never below 1: a machine that becomes quicker than it was known to be shows it by kind. To scale kinds that do not run by that of others
// would promise too much, should these have had longer contexts before.
class Pace {
 public:
  double now() const { return now_; }

  // Over the last kMeanOf steps; as many as were not run since the last rest count as usual.
  double mean() const { return (sum_ + double(kMeanOf - all_.size()) * used_to_) / double(kMeanOf); }

  // A step took `ratio` times what its kind normally takes.
  void vote(double ratio) {
    ratio = std::min(ratio, kFreak);
    sum_ += ratio - (all_.full() ? all_[0] : 0.0);
    all_.push(ratio);
    votes_.push(ratio);
    usual_ = used_to_ / kAlike <= ratio && ratio <= used_to_ * kNoise ? usual_ + 1 : 0;
    if (is_usual()) {
      now_ = used_to_;
      apart_ = 0;
      return;
    }
    double ordered[kLast];
    const size_t count = votes_.size();
    votes_.sorted(0, count, ordered);
    now_ = count >= kSlow ? near(ordered[count - kSlow], kNoise) : used_to_;
    const double median = near(ordered[count / 2], kAlike);
    apart_ = median == used_to_ ? 0 : apart_ + 1;
    if (apart_ < kUsedTo) return;
    used_to_ = median;
    apart_ = usual_ = 0;
  }

  // What the pace was at the vote that has so many others behind it: that of those before it or of those after. At the border of a spell
  // they differ, and it belongs to whom it is like.
  double then(size_t behind = kAfter) const {
    if (is_usual() || behind >= votes_.size()) return used_to_;
    const size_t count = votes_.size(), at = count - 1 - behind, from = at > kAfter ? at - kAfter : 0;
    double before[kLast], after[kLast];
    votes_.sorted(from, at + 1, before);
    votes_.sorted(at, count, after);
    const double own = votes_[at], earlier = before[(at + 1 - from) / 2], later = after[(count - at) / 2];
    return near(std::abs(earlier - own) <= std::abs(later - own) ? earlier : later, kAlike);
  }

  // No steps run: what follows may be another spell. Whoever is refused for a slow one would never end it.
  void rest() {
    votes_.clear();
    all_.clear();
    sum_ = 0.0;
    now_ = used_to_;
    apart_ = usual_ = 0;
  }

 private:
  static constexpr size_t kLast = 17, kSlow = 5;  // votes, and so many of them make the pace rise
  static constexpr double kNoise = 1.15;          // over what the machine is used to
  static constexpr double kAlike = 1.25;
  static constexpr int kUsedTo = 1024;  // votes in a row after which a pace is no spell any more
  static constexpr size_t kMeanOf = 128;

  bool is_usual() const { return usual_ >= int64_t(kLast); }
  double near(double ratio, double noise) const {
    return used_to_ / kAlike <= ratio && ratio <= used_to_ * noise ? used_to_ : std::max(1.0, ratio);
  }

  double now_ = 1.0, used_to_ = 1.0;
  Last<double, kLast> votes_;
  int64_t usual_ = 0;  // votes in a row for the pace that the machine is used to, as it is nearly always
  int apart_ = 0;      // votes in a row that were of another pace than it is used to
  Last<double, kMeanOf> all_;
  double sum_ = 0.0;
};

// `ratio`: what a step takes at most over what it usually takes, but for about one in 3,000.
//
// A kind that is rare has not met the machine's rare moments yet: an interrupt, a neighbour, a page that is moved. What these do to a step
// is alike for all kinds, so its bound is learned from all. The largest of `n` is passed by the next one with a chance of 1 / (n + 1): who
// begins to learn is wrong nine times in the first generation, and no rule that looks back can be so less often.
class Overrun {
 public:
  double ratio() const { return ratio_; }

  // A step took so many times what its kind usually takes.
  void add(double ratio) {
    if (++count_ > kGeneration) {
      before_ = largest_;
      largest_ = {};
      count_ = 1;
    }
    if (!largest_.add(ratio) && count_ > 1) return;
    if (before_.count) ratio_ = std::max(1.0, second(before_, largest_));
    else ratio_ = std::max(1.0, largest_.first);
  }

 private:
  static constexpr int kGeneration = 4096;  // steps after which the older half is forgotten

  // The largest ones, as the first of two generations may be a freak.
  struct Two {
    double first = 0.0, second = 0.0;
    int count = 0;

    bool add(double ratio) {
      if (count == 2 && ratio <= second) return false;
      if (count == 0 || ratio >= first) second = first, first = ratio;
      else second = ratio;
      count = std::min(2, count + 1);
      return true;
    }
  };

  static double second(Two all, const Two& more) {
    if (more.count) all.add(more.first);
    if (more.count == 2) all.add(more.second);
    return all.count == 2 ? all.second : all.first;
  }

  double ratio_ = 1.0;
  Two largest_, before_;  // of this generation, and of the one before
  int count_ = 0;
};

}  // namespace zl
