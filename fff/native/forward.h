// The hard path: from the root of each tree to a leaf, and the sum of what its neurons write.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "parallel.h"
#include "vectors.h"

namespace fff {

struct Shape {
  int64_t tokens, width, depth, trees;
  Activation activation;
  bool ties_right;

  int64_t nodes() const { return (int64_t{2} << depth) - 1; }
  int64_t levels() const { return depth + 1; }
  int64_t path() const { return trees * levels(); }
  int64_t padded() const { return (width + kPiece - 1) / kPiece * kPiece; }
};

// Where the path of every token is kept, (tokens, trees, levels): nodes counted over all trees,
// logits, and what the neurons add to the output.
struct Path {
  int32_t* node;
  float* logit;
  float* value;
};

// Tokens in the order in which their weights are read; without a list, 0, 1, 2 ...
inline int64_t token_at(const int32_t* order, int64_t i) { return order ? order[i] : i; }

inline void prefetch(const void* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64)
    __builtin_prefetch(static_cast<const char*>(p) + i);
}

// For each of G outputs: to = (or, with `adds`, to +=) sum over `count` rows of value * row. The
// first `shared` rows are the same for all of them and are read once.
template <class W, int G>
void combine(const typename W::Stored* const* const* row, const float* const* value, int64_t count,
             int64_t shared, int64_t width, bool adds, float* const* to) {
  const auto put = [&](int g, int64_t i, int64_t columns, Pair total) {
    total = W::unpack(total);
    float last[kPiece] = {};
    const bool is_whole = columns == kPiece;
    if (!is_whole && adds) std::memcpy(last, to[g] + i, columns * sizeof(float));
    float* place = is_whole ? to[g] + i : last;
    if (adds) {
      const Pair before = load_pair(place);
      total = {total.a + before.a, total.b + before.b};
    }
    store_pair(place, total);
    if (!is_whole) std::memcpy(to[g] + i, last, columns * sizeof(float));
  };
  // P pieces at once: enough sums to keep the multipliers busy while each waits for its last one.
  const auto pieces = [&](int64_t i, int64_t columns, auto number, auto read) {
    constexpr int P = decltype(number)::value;
    Pair total[G][P] = {};
    const auto add = [&](int g, int p, float scale, Pair w) {
      total[g][p].a += broadcast(scale) * w.a;
      total[g][p].b += broadcast(scale) * w.b;
    };
    for (int64_t r = 0; r < shared; ++r)
      for (int p = 0; p < P; ++p) {
        const Pair w = read(row[0][r] + i + p * kPiece);
        for (int g = 0; g < G; ++g) add(g, p, value[g][r], w);
      }
    for (int64_t r = shared; r < count; ++r)
      for (int g = 0; g < G; ++g)
        for (int p = 0; p < P; ++p) add(g, p, value[g][r], read(row[g][r] + i + p * kPiece));
    for (int g = 0; g < G; ++g)
      for (int p = 0; p < P; ++p) put(g, i + p * kPiece, columns, total[g][p]);
  };
  constexpr int kPieces = G == 1 ? 2 : 1;
  int64_t i = 0;
  for (; i + kPieces * kPiece <= width; i += kPieces * kPiece)
    pieces(i, kPiece, std::integral_constant<int, kPieces>{}, W::piece);
  for (; i < width; i += kPiece) {
    const int64_t rest = std::min<int64_t>(width - i, kPiece);
    pieces(i, rest, std::integral_constant<int, 1>{},
           [rest](auto* from) { return last_piece<W>(from, rest); });
  }
}

// Products of G packed tokens, each with a row of its own. The order in which a product is summed
// does not depend on G.
template <class W, int G>
void dots(const float* const* token, const typename W::Stored* const* row, int64_t width,
          float* product) {
  Vec a[G] = {}, b[G] = {};
  const auto add = [&](int g, int64_t i, Pair w) {
    a[g] += load(token[g] + i) * w.a;
    b[g] += load(token[g] + i + kLanes) * w.b;
  };
  int64_t i = 0;
  for (; i + kPiece <= width; i += kPiece)
    for (int g = 0; g < G; ++g) add(g, i, W::piece(row[g] + i));
  if (i < width)
    for (int g = 0; g < G; ++g) add(g, i, last_piece<W>(row[g] + i, width - i));
  for (int g = 0; g < G; ++g) product[g] = sum(a[g] + b[g]);
}

// Tokens that are walked, and written, at once.
constexpr int kGroup = 4;
// Levels of the deepest tree whose nodes have numbers of 32 bits.
constexpr int kMaxLevels = 31;

template <class W>
struct Forward {
  typedef typename W::Stored Stored;
  Shape shape;
  const float *x, *bias;
  const Stored *in, *out;
  float* y;
  Path path;

  // Whether a token can be read where it lies: in the order of the weights, in whole pieces.
  static constexpr bool kKeepsOrder = sizeof(Stored) == sizeof(float);

  const float* packed(int64_t token, float* scratch) const {
    const float* from = x + token * shape.width;
    if (kKeepsOrder && shape.width == shape.padded()) return from;
    pack_token<W>(from, shape.width, scratch);
    return scratch;
  }

  // Walks G pairs of a token and a tree at once, which hides the wait for the next row, from level
  // `first` to before `last`. `at` is the index of level 0 in the arrays of the path.
  template <int G>
  void walk(const float* const* token, const int64_t* at, const int64_t* tree, int64_t first,
            int64_t last) const {
    int64_t node[G];
    for (int g = 0; g < G; ++g)
      node[g] = first == 0 ? 0 : next(at[g] + first - 1, tree[g] * shape.nodes());
    for (int64_t level = first; level < last; ++level) {
      const Stored* row[G];
      float logit[G];
      for (int g = 0; g < G; ++g) {
        const int64_t global = tree[g] * shape.nodes() + node[g];
        path.node[at[g] + level] = global;
        row[g] = in + global * shape.width;
        // One token alone waits for memory: ask for what it writes, and for both next rows.
        if (G == 1) {
          prefetch(out + global * shape.width, shape.width * sizeof(Stored));
          if (level < shape.depth)
            prefetch(in + (tree[g] * shape.nodes() + 2 * node[g] + 1) * shape.width,
                     2 * shape.width * sizeof(Stored));
        }
      }
      dots<W, G>(token, row, shape.width, logit);
      for (int g = 0; g < G; ++g) {
        path.logit[at[g] + level] = logit[g] + bias[path.node[at[g] + level]];
        node[g] = next(at[g] + level, tree[g] * shape.nodes());
      }
    }
  }

  // The child to which the node at this place of the path sends its token; NaN goes left.
  int64_t next(int64_t at, int64_t base) const {
    const float z = path.logit[at];
    return 2 * (path.node[at] - base) + 1 + (shape.ties_right ? z >= 0 : z > 0);
  }

  // Adds what the neurons on the paths of G tokens write; the first tree sets the output. The first
  // `shared` levels of these paths are the same.
  template <int G>
  void write(const int32_t* order, int64_t i, int64_t tree, int64_t shared) const {
    const Stored* row[G][kMaxLevels];
    const Stored* const* rows[G];
    const float* value[G];
    float* to[G];
    for (int g = 0; g < G; ++g) {
      const int64_t t = token_at(order, i + g), at = place(t, tree);
      activate(shape.activation, path.logit + at, path.value + at, shape.levels());
      for (int64_t level = 0; level < shape.levels(); ++level)
        row[g][level] = out + int64_t{path.node[at + level]} * shape.width;
      rows[g] = row[g];
      value[g] = path.value + at;
      to[g] = y + t * shape.width;
    }
    combine<W, G>(rows, value, shape.levels(), shared, shape.width, tree > 0, to);
  }

  // Tokens that share most of their path are written together, others one by one: rows read for
  // one token alone are best read from their beginning to their end.
  void write_all(const int32_t* order, int64_t begin, int64_t end, int64_t tree) const {
    int64_t i = begin;
    for (; i + kGroup <= end; i += kGroup) {
      int64_t shared = 0;
      while (shared < shape.levels() && is_shared(order, i, tree, shared)) ++shared;
      if (2 * shared > shape.levels())
        write<kGroup>(order, i, tree, shared);
      else
        for (int g = 0; g < kGroup; ++g) write<1>(order, i + g, tree, 0);
    }
    for (; i < end; ++i) write<1>(order, i, tree, 0);
  }

  bool is_shared(const int32_t* order, int64_t i, int64_t tree, int64_t level) const {
    const int32_t node = path.node[place(token_at(order, i), tree) + level];
    for (int g = 1; g < kGroup; ++g)
      if (path.node[place(token_at(order, i + g), tree) + level] != node) return false;
    return true;
  }

  // Where the path of a token through a tree begins.
  int64_t place(int64_t token, int64_t tree) const {
    return token * shape.path() + tree * shape.levels();
  }

  // Tokens `begin` ... `end` of the order, through levels `first` ... before `last` of one tree.
  void walk_all(const int32_t* order, int64_t begin, int64_t end, int64_t tree, int64_t first,
                int64_t last) const {
    std::vector<float> scratch(kGroup * shape.padded());
    int64_t i = begin;
    for (; i + kGroup <= end; i += kGroup) step<kGroup>(order, i, tree, first, last, scratch);
    for (; i < end; ++i) step<1>(order, i, tree, first, last, scratch);
  }

  template <int G>
  void step(const int32_t* order, int64_t i, int64_t tree, int64_t first, int64_t last,
            std::vector<float>& scratch) const {
    const float* token[G];
    int64_t at[G], trees[G];
    for (int g = 0; g < G; ++g) {
      const int64_t t = token_at(order, i + g);
      token[g] = packed(t, scratch.data() + g * shape.padded());
      at[g] = place(t, tree);
      trees[g] = tree;
    }
    walk<G>(token, at, trees, first, last);
  }
};

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
