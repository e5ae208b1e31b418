// The merges of a byte-pair vocabulary, and the proof that merging by strings equals merging by pairs (text/bpe.py says what that is).
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace zl {

using Strings = std::vector<std::string_view>;

enum class Proof { kEqual, kNotTwoHalves, kNotFromBytes, kSeveralPairs, kMadeLater, kUnreachable };

// Tokens left[rank] and right[rank] become merged[rank].
class Merges {
 public:
  // `lines` are "left right", `tokens` as the file writes them. Throws std::invalid_argument where one names no token.
  Merges(const Strings& lines, const Strings& tokens) : tokens_(tokens.size()) {
    std::unordered_map<std::string_view, int32_t> id_of(2 * tokens.size());
    for (size_t id = 0; id < tokens.size(); id++) id_of[tokens[id]] = int32_t(id);
    const auto find = [&](std::string_view token) {
      const auto found = id_of.find(token);
      if (found == id_of.end()) throw std::invalid_argument("a merge names no token");
      return found->second;
    };
    std::string whole;
    rank_of_.reserve(2 * lines.size());
    for (const std::string_view line : lines) {
      const size_t cut = line.find(' ');
      if (cut == line.npos) throw std::invalid_argument("a merge names no token");
      const std::string_view first = line.substr(0, cut), second = line.substr(cut + 1);
      whole.assign(first).append(second);
      left.push_back(find(first));
      right.push_back(find(second));
      merged.push_back(find(whole));
      rank_of_.emplace(pair(left.back(), right.back()), int32_t(merged.size() - 1));  // of equal pairs the first counts
    }
  }

  // Of a pair of tokens; -1: they do not merge.
  int rank(int32_t first, int32_t second) const { return rank(first, second, -1); }

  // `pieces`: the bytes that each token stands for.
  Proof prove(const Strings& pieces) const {
    if (pieces.size() != tokens_) throw std::invalid_argument("a piece for each token");
    std::vector<bool> made(tokens_), part(tokens_);
    bool several = false;
    std::string whole;
    for (size_t rank = 0; rank < merged.size(); rank++) {
      whole.assign(pieces[left[rank]]).append(pieces[right[rank]]);
      if (whole != pieces[merged[rank]]) return Proof::kNotTwoHalves;
      several = several || made[merged[rank]];
      made[merged[rank]] = part[left[rank]] = part[right[rank]] = true;
    }
    for (size_t token = 0; token < tokens_; token++)
      if (part[token] && !made[token] && pieces[token].size() != 1) return Proof::kNotFromBytes;
    return several ? Proof::kSeveralPairs : prove_reachable();
  }

  std::vector<int32_t> left, right, merged;

 private:
  static uint64_t pair(int32_t first, int32_t second) { return uint64_t(first) << 32 | uint32_t(second); }

  int rank(int32_t first, int32_t second, int otherwise) const {
    const auto found = rank_of_.find(pair(first, second));
    return found == rank_of_.end() ? otherwise : found->second;
  }

  // Each token, encoded alone, ends in its listed pair (u, v): no merge crosses the border before.
  //
  // Time runs backwards: u and v are taken apart, latest merge first. The two symbols at the border lived until the merge being undone;
  // had their own pair come earlier, it would have been merged. Of equal pairs the left one comes first, hence the two comparisons.
  Proof prove_reachable() const {
    std::vector<int> made_at(tokens_, -1);  // rank of the merge that makes a token; -1: it is there from the start
    for (size_t rank = 0; rank < merged.size(); rank++) made_at[merged[rank]] = int(rank);
    for (size_t at = 0; at < merged.size(); at++) {
      int32_t u = left[at], v = right[at];
      int made_u = made_at[u], made_v = made_at[v];
      if (std::max(made_u, made_v) >= int(at)) return Proof::kMadeLater;
      while (made_u >= 0 || made_v >= 0) {
        if (made_u > made_v) {
          u = right[made_u];
          if (rank(u, v, made_u) < made_u) return Proof::kUnreachable;
          made_u = made_at[u];
        } else {
          v = left[made_v];
          if (rank(u, v, made_v + 1) <= made_v) return Proof::kUnreachable;
          made_v = made_at[v];
        }
      }
    }
    return Proof::kEqual;
  }

  const size_t tokens_;
  std::unordered_map<uint64_t, int32_t> rank_of_;
};

}  // namespace zl
