// What steps of each kind take: what a cost table keeps, which hears of every step (model/cost.py). Pure: no clock, no Python.
//
// A kind is a class of decode rows, and a power of two of the tokens of the chunk that rides along. Its row keeps its last measurements, as
// if the machine had its normal speed: their median is what it normally takes, the largest of them, with a margin, its bound.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "step_pace.hpp"

namespace zl {

// The last measurements of one kind of step, as if the machine had its normal speed.
class StepRow {
 public:
  int64_t normal() const { return normal_; }
  int64_t bound() const { return bound_; }
  size_t count() const { return last_.size(); }
  int64_t seen = 0;  // the step that was the last one of its kind

  // What was measured says nothing any more.
  void forget() {
    last_.clear();
    normal_ = bound_ = new_ = 0;
  }

  // Whether what it normally takes was computed anew.
  bool add(int64_t elapsed_ns) {
    last_.push(elapsed_ns);
    int64_t most = elapsed_ns;
    for (size_t place = 0; place < count(); place++) most = std::max(most, last_[place]);
    bound_ = int64_t(double(most) * kMargin);
    if (++new_ < kSortEvery && kSortEvery < int64_t(count())) return false;
    new_ = 0;
    int64_t rising[kWindow];
    last_.sorted(0, count(), rising);
    normal_ = rising[(count() - 1) / 2];
    return true;
  }

  static constexpr double kMargin = 1.1;  // over the largest step seen: the next one may be a little larger

 private:
  static constexpr size_t kWindow = 64;
  static constexpr int64_t kSortEvery = 16;  // new measurements before a median is computed anew

  Last<int64_t, kWindow> last_;
  int64_t normal_ = 0, bound_ = 0, new_ = 0;
};

// One writer.
class StepTimes {
 public:
  enum class Seen { kSame, kAnew, kUnsure };  // whether what some kind normally takes was computed anew

  static constexpr int64_t kYoung = 17;      // steps of a table, which are the start's: there is no pace yet to divide them by
  static constexpr double kHeadroom = 1.05;  // of the promised rate over the recent mean

  StepTimes(int slots, int chunk_tokens) {
    for (int chunk = 0; chunk <= bucket(chunk_tokens); chunk++)  // whose prompt is read does not decode
      rows_.emplace_back(size_t(class_of(slots - (chunk > 0))) + 1);
  }

  // 0 for none, else the position of the power of two that is at least `tokens`, plus one.
  static int bucket(int tokens) { return tokens <= 0 ? 0 : std::bit_width(unsigned(tokens - 1)) + 1; }

  // 0 for none, one for each number up to 16, then four for each doubling.
  static int class_of(int rows) {
    if (rows <= kExact) return std::max(rows, 0);
    const int shift = std::bit_width(unsigned(rows - 1)) - 3;
    return kExact + 4 * (shift - 2) + ((rows - 1) >> shift) - 3;
  }

  // Record one step. kUnsure: nothing was done, as all that is known of its kind is from the start, and may be refuted meanwhile; `sure`:
  // that was looked at.
  Seen observe(int decode_rows, int prefill_tokens, int64_t elapsed_ns, bool sure) {
    StepRow& row = of(decode_rows, prefill_tokens);
    if (!sure && steps_ + 1 > kYoung && row.seen > 0 && row.seen <= kYoung) return Seen::kUnsure;
    anew_ = false;
    row.seen = ++steps_;
    if (steps_ % kGeneration == 0) before_ = worst_, worst_ = backlog_;
    if (!row.normal()) {
      anew_ |= row.add(int64_t(double(elapsed_ns) / pace_.now()));
      return seen();
    }
    overrun_.add(double(elapsed_ns) / (double(row.normal()) * pace_.now()));
    pace_.vote(double(elapsed_ns) / double(row.normal()));
    if (steps_ <= kYoung) {
      enter(row, elapsed_ns, pace_.now());
      return seen();
    }
    fresh_.push({&row, elapsed_ns});
    if (fresh_.size() > kAfter) settle(kAfter);
    return seen();
  }

  // The engine has had no work for a while: nothing tells the machine's pace, and its outliers are of the past.
  Seen rest() {
    anew_ = false;
    while (fresh_.size()) settle(fresh_.size() - 1);
    pace_.rest();
    worst_ *= kFades;
    before_ *= kFades;
    return seen();
  }

  // Upper bound of one step; 0 before a step of its kind was measured.
  int64_t bound_ns(int decode_rows, int prefill_tokens) {
    const StepRow& row = of(decode_rows, prefill_tokens);
    return int64_t(std::max(double(row.bound()), double(row.normal()) * overrun_.ratio() * StepRow::kMargin) * pace_.now());
  }

  StepRow& row(size_t chunk, size_t place) { return rows_.at(chunk).at(place); }
  const Pace& pace() const { return pace_; }
  int64_t steps() const { return steps_; }
  double backlog() const { return backlog_; }
  double worst() const { return std::max(worst_, before_); }
  double scale() const { return scale_; }

 private:
  static constexpr int kExact = 16;             // so many decode rows have each a row of their own
  static constexpr int64_t kGeneration = 4096;  // steps after which the older half of the backlogs is forgotten
  static constexpr double kMeanOver = 256;      // steps
  static constexpr double kFades = 0.95;        // of the largest backlogs, each second without work

  struct Fresh {
    StepRow* row;
    int64_t elapsed_ns;
  };

  Seen seen() const { return anew_ ? Seen::kAnew : Seen::kSame; }

  StepRow& of(int decode_rows, int prefill_tokens) {
    std::vector<StepRow>& chunk = rows_[std::min(size_t(bucket(prefill_tokens)), rows_.size() - 1)];
    return chunk[std::min(size_t(class_of(decode_rows)), chunk.size() - 1)];
  }

  // Enter a step. One that begins a slow spell looks like any outlier: those behind it told which it was.
  void settle(size_t behind) {
    const Fresh oldest = fresh_[0];
    fresh_.pop();
    enter(*oldest.row, oldest.elapsed_ns, pace_.then(behind));
  }

  // What a spell takes longer than was promised before it is no outlier: nothing is held in reserve for it.
  void enter(StepRow& row, int64_t elapsed_ns, double pace) {
    const double typical = double(row.normal()) * pace;
    anew_ |= row.add(int64_t(double(elapsed_ns) / pace));
    scale_ += (std::min(double(elapsed_ns) / typical, kFreak) - scale_) / kMeanOver;
    const double promised = std::max(typical * std::max(1.0, scale_), double(row.normal()) * pace_.mean()) * kHeadroom;
    backlog_ = std::max(0.0, backlog_ + double(elapsed_ns) - promised);
    worst_ = std::max(worst_, backlog_);
  }

  std::vector<std::vector<StepRow>> rows_;  // by chunk and class; none is added later
  Pace pace_;
  Overrun overrun_;
  Last<Fresh, kAfter + 1> fresh_;  // measurements whose pace the next few steps will tell
  double scale_ = 1.0, backlog_ = 0.0;
  double worst_ = 0.0, before_ = 0.0;  // largest backlog of this generation and of the one before
  int64_t steps_ = 0;
  bool anew_ = false;
};

}  // namespace zl
