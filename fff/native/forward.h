// The hard path: from the root of each tree to a leaf, and the sum of what its neurons write.
#pragma once

#include <vector>

#include "rows.h"

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

  // Walks G tokens at once, which hides the wait for the next row, from level `first` to before
  // `last` of a tree. `at` is the index of level 0 in the arrays of the path.
  template <int G>
  void walk(const float* const* token, const int64_t* at, int64_t tree, int64_t first,
            int64_t last) const {
    const int64_t base = tree * shape.nodes();
    int64_t node[G];
    for (int g = 0; g < G; ++g) node[g] = first == 0 ? 0 : next(at[g] + first - 1, base);
    for (int64_t level = first; level < last; ++level) {
      const Stored* row[G];
      float logit[G];
      for (int g = 0; g < G; ++g) {
        const int64_t global = base + node[g];
        path.node[at[g] + level] = global;
        row[g] = in + global * shape.width;
        // One token alone waits for memory: ask for what it writes, and for both next rows.
        if (G == 1) {
          prefetch(out + global * shape.width, shape.width * sizeof(Stored));
          if (level < shape.depth)
            prefetch(in + (base + 2 * node[g] + 1) * shape.width,
                     2 * shape.width * sizeof(Stored));
        }
      }
      dots<W, G>(token, row, shape.width, logit);
      for (int g = 0; g < G; ++g) {
        path.logit[at[g] + level] = logit[g] + bias[path.node[at[g] + level]];
        node[g] = next(at[g] + level, base);
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
    int64_t at[G];
    for (int g = 0; g < G; ++g) {
      const int64_t t = token_at(order, i + g);
      token[g] = packed(t, scratch.data() + g * shape.padded());
      at[g] = place(t, tree);
    }
    walk<G>(token, at, tree, first, last);
  }
};

}  // namespace fff
