// Vectors of the compiler's own, rows of float32 and bfloat16 weights, and activations.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

namespace fff {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
// A row is read in pieces of two vectors; buffers of tokens are padded to whole pieces.
constexpr int kPiece = 2 * kLanes;

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef uint32_t Bits __attribute__((vector_size(kLanes * 4)));

inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Vec v) { std::memcpy(p, &v, sizeof v); }
inline Vec broadcast(float value) { return Vec{} + value; }

template <int Step, size_t... I>
inline Vec rotate(Vec v, std::index_sequence<I...>) {
  return __builtin_shufflevector(v, v, (I + Step) % kLanes...);
}
template <int Step = kLanes / 2>
inline float sum(Vec v) {
  v += rotate<Step>(v, std::make_index_sequence<kLanes>{});
  if constexpr (Step > 1)
    return sum<Step / 2>(v);
  else
    return v[0];
}

struct Pair {
  Vec a, b;
};

inline Pair load_pair(const float* p) { return {load(p), load(p + kLanes)}; }
inline void store_pair(float* p, Pair v) {
  store(p, v.a);
  store(p + kLanes, v.b);
}

// How a weight is stored. `pack` puts a float32 piece into the order in which `piece` gives one of
// weights, `unpack` undoes it. float32 keeps its order. Of bfloat16, whose bits are the upper half
// of a float32's, the even elements come first and the odd ones second: a shift and a mask then
// widen a whole vector.
struct Float32 {
  typedef float Stored;
  static Pair piece(const float* w) { return load_pair(w); }
  static Pair pack(Pair v) { return v; }
  static Pair unpack(Pair v) { return v; }
};

struct BFloat16 {
  typedef uint16_t Stored;
  static Pair piece(const uint16_t* w) {
    Bits bits;
    std::memcpy(&bits, w, sizeof bits);
    const Bits even = bits << 16, odd = bits & 0xffff0000u;
    Pair pair;
    std::memcpy(&pair.a, &even, sizeof even);
    std::memcpy(&pair.b, &odd, sizeof odd);
    return pair;
  }
  static Pair pack(Pair v) { return split(v, Lanes{}); }
  static Pair unpack(Pair v) { return join(v, Lanes{}); }

 private:
  typedef std::make_index_sequence<kLanes> Lanes;
  template <size_t... I>
  static Pair split(Pair v, std::index_sequence<I...>) {
    return {__builtin_shufflevector(v.a, v.b, 2 * I...),
            __builtin_shufflevector(v.a, v.b, 2 * I + 1 ...)};
  }
  template <size_t... I>
  static Pair join(Pair v, std::index_sequence<I...>) {
    constexpr int n = kLanes;
    return {__builtin_shufflevector(v.a, v.b, I / 2 + I % 2 * n...),
            __builtin_shufflevector(v.a, v.b, (I + n) / 2 + I % 2 * n...)};
  }
};

// The last `columns` weights of a row as a piece, with zeros after them.
template <class W>
inline Pair last_piece(const typename W::Stored* row, int64_t columns) {
  typename W::Stored padded[kPiece] = {};
  std::memcpy(padded, row, columns * sizeof *row);
  return W::piece(padded);
}

// Puts a token into the order of W's pieces, with zeros up to a whole piece.
template <class W>
inline void pack_token(const float* from, int64_t width, float* to) {
  int64_t i = 0;
  for (; i + kPiece <= width; i += kPiece) store_pair(to + i, W::pack(load_pair(from + i)));
  if (i == width) return;
  float last[kPiece] = {};
  std::memcpy(last, from + i, (width - i) * sizeof(float));
  store_pair(to + i, W::pack(load_pair(last)));
}

// erf as a ratio of polynomials, to about 2e-7, as in Eigen and XLA. NaN stays NaN.
inline float erf_ratio(float x) {
  x = x < -4.0f ? -4.0f : (x > 4.0f ? 4.0f : x);
  const float s = x * x;
  float p = -2.72614225801306e-10f;
  p = p * s + 2.77068142495902e-08f;
  p = p * s - 2.10102402082508e-06f;
  p = p * s - 5.69250639462346e-05f;
  p = p * s - 7.34990630326855e-04f;
  p = p * s - 2.95459980854025e-03f;
  p = p * s - 1.60960333262415e-02f;
  float q = -1.45660718464996e-05f;
  q = q * s - 2.13374055278905e-04f;
  q = q * s - 1.68282697438203e-03f;
  q = q * s - 7.37332916720468e-03f;
  q = q * s - 1.42647390514189e-02f;
  return x * p / q;
}

enum Activation : int64_t { kGelu = 0, kRelu = 1 };

inline void activate(Activation kind, const float* z, float* out, int64_t count) {
  if (kind == kRelu) {
    for (int64_t i = 0; i < count; ++i) out[i] = z[i] < 0 ? 0 : z[i];
  } else {
    for (int64_t i = 0; i < count; ++i)
      out[i] = 0.5f * z[i] * (1.0f + erf_ratio(z[i] * 0.70710678118654752f));
  }
}

inline float slope(Activation kind, float z) {
  if (kind == kRelu) return z > 0 ? 1.0f : 0.0f;
  const float density = 0.39894228040143268f * std::exp(-0.5f * z * z);
  return 0.5f * (1.0f + erf_ratio(z * 0.70710678118654752f)) + z * density;
}

}  // namespace fff
