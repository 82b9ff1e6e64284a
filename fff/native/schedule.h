// In which order tokens meet the trees, and on which threads.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "forward.h"
#include "parallel.h"

namespace fff {

// Bytes of weights that are to stay in a core's second-level cache while tokens pass.
inline int64_t cached_bytes() {
  static const int64_t bytes = [] {
#ifdef _SC_LEVEL2_CACHE_SIZE
    const int64_t found = sysconf(_SC_LEVEL2_CACHE_SIZE);
    if (found > 0) return found / 2;
#endif
    return int64_t{256} << 10;
  }();
  return bytes;
}

// Levels at the bottom of a tree whose subtrees fit into that cache.
inline int64_t cached_levels(const Shape& shape, int64_t bytes_per_weight) {
  int64_t levels = 1;
  while (levels < shape.levels() &&
         ((int64_t{2} << levels) - 1) * 2 * shape.width * bytes_per_weight <= cached_bytes())
    ++levels;
  return levels;
}

// Sorts `count` tokens by the node that they reach at one level of a tree, keeping their order
// within each; `first` is the first of `nodes` such nodes. Returns where each node's tokens begin.
inline std::vector<int64_t> sort_tokens(const Shape& shape, const Path& path, const int32_t* from,
                                        int64_t count, int64_t tree, int64_t level, int64_t first,
                                        int64_t nodes, int32_t* to) {
  const int64_t offset = tree * shape.levels() + level;
  const auto bucket = [&](int64_t i) {
    return path.node[token_at(from, i) * shape.path() + offset] - first;
  };
  std::vector<int64_t> starts(nodes + 1, 0);
  for (int64_t i = 0; i < count; ++i) ++starts[bucket(i) + 1];
  for (int64_t n = 0; n < nodes; ++n) starts[n + 1] += starts[n];
  std::vector<int64_t> place(starts.begin(), starts.end() - 1);
  for (int64_t i = 0; i < count; ++i) to[place[bucket(i)]++] = token_at(from, i);
  return starts;
}

// "Tokens" takes tokens in their own order. "Subtrees" walks the upper levels so, sorts tokens by
// the subtree they have come to, whose rows then stay in the cache for all of its tokens, and sorts
// these by leaf, so that tokens written together share most rows.
enum Schedule : int64_t { kAuto = 0, kTokens = 1, kSubtrees = 2 };

template <class W>
void run_tokens(const Forward<W>& f, xla::ffi::ThreadPool& pool) {
  const Shape& s = f.shape;
  // Little work is not worth waking a thread for. Otherwise, blocks of tokens pass each of many
  // small trees while that is in the cache.
  const bool is_little = s.tokens * s.path() * s.width < 100'000;
  const int64_t share = s.tokens / (4 * std::max<int64_t>(1, pool.num_threads()));
  const int64_t block =
      is_little ? s.tokens : std::clamp<int64_t>(share / kGroup * kGroup, kGroup, 64);
  parallel_for(pool, (s.tokens + block - 1) / block, [&](int64_t task) {
    const int64_t begin = task * block, end = std::min(begin + block, s.tokens);
    for (int64_t tree = 0; tree < s.trees; ++tree)
      for (int64_t i = begin; i < end; i += kGroup) {
        const int64_t next = std::min<int64_t>(i + kGroup, end);
        f.walk_all(nullptr, i, next, tree, 0, s.levels());
        f.write_all(nullptr, i, next, tree);
      }
  });
}

template <class W>
void run_subtrees(const Forward<W>& f, xla::ffi::ThreadPool& pool, int64_t upper) {
  const Shape& s = f.shape;
  constexpr int64_t kWalked = 32, kSorted = 512;
  std::vector<int32_t> order(s.tokens);
  for (int64_t tree = 0; tree < s.trees; ++tree) {
    const int64_t base = tree * s.nodes();
    parallel_for(pool, (s.tokens + kWalked - 1) / kWalked, [&](int64_t task) {
      const int64_t begin = task * kWalked, end = std::min(begin + kWalked, s.tokens);
      f.walk_all(nullptr, begin, end, tree, 0, upper);
      for (int64_t t = begin; t < end; ++t) {
        const int64_t at = f.place(t, tree) + upper;
        f.path.node[at] = base + f.next(at - 1, base);
      }
    });
    const int64_t first = (int64_t{1} << upper) - 1;
    const std::vector<int64_t> starts = sort_tokens(
        s, f.path, nullptr, s.tokens, tree, upper, base + first, first + 1, order.data());
    // Where routing is skewed most tokens are in one subtree: parts of it are tasks.
    struct Part {
      int64_t root, begin, end;
    };
    std::vector<Part> parts;
    for (int64_t root = 0; root <= first; ++root)
      for (int64_t begin = starts[root]; begin < starts[root + 1]; begin += kSorted)
        parts.push_back({root, begin, std::min(begin + kSorted, starts[root + 1])});
    parallel_for(pool, parts.size(), [&](int64_t task) {
      const Part part = parts[task];
      f.walk_all(order.data(), part.begin, part.end, tree, upper, s.levels());
      const int64_t leaves = int64_t{1} << (s.depth - upper);
      const int64_t leaf = base + (int64_t{1} << s.depth) - 1 + part.root * leaves;
      std::vector<int32_t> by_leaf(part.end - part.begin);
      sort_tokens(s, f.path, order.data() + part.begin, part.end - part.begin, tree, s.depth, leaf,
                  leaves, by_leaf.data());
      f.write_all(by_leaf.data(), 0, by_leaf.size(), tree);
    });
  }
}

template <class W>
void run_forward(const Forward<W>& f, xla::ffi::ThreadPool& pool, Schedule schedule) {
  const Shape& s = f.shape;
  const int64_t upper = s.levels() - cached_levels(s, sizeof(typename W::Stored));
  if (schedule == kAuto) schedule = s.tokens >= (int64_t{16} << upper) ? kSubtrees : kTokens;
  if (schedule == kSubtrees && upper > 0)
    run_subtrees(f, pool, upper);
  else
    run_tokens(f, pool);
}

}  // namespace fff
