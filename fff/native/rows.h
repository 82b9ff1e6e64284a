// Products with rows of weights, and sums of rows: what a tree computes at its nodes.
#pragma once

#include <algorithm>
#include <type_traits>

#include "vectors.h"

namespace fff {

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

}  // namespace fff
