// Gradients of the hard path with respect to tokens and to the rows that they read.
#pragma once

#include "forward.h"
#include "parallel.h"

namespace fff {

template <class W>
struct Backward {
  typedef typename W::Stored Stored;
  Shape shape;
  const float *x, *grad_y, *logit;
  const int32_t* node;
  const Stored *in, *out;
  float *grad_x, *grad_in, *grad_bias, *grad_out;

  // Gradient of each logit on a token's path, and from these the gradient of the token.
  void token(int64_t t, float* grad_logit, float* scratch) const {
    pack_token<W>(grad_y + t * shape.width, shape.width, scratch);
    const int64_t at = t * shape.path();
    std::vector<const Stored*> row(shape.path());
    for (int64_t p = 0; p < shape.path(); ++p) {
      const Stored* written = out + int64_t{node[at + p]} * shape.width;
      float product;
      dots<W, 1>(&scratch, &written, shape.width, &product);
      grad_logit[at + p] = product * slope(shape.activation, logit[at + p]);
      row[p] = in + int64_t{node[at + p]} * shape.width;
    }
    const Stored* const* rows = row.data();
    const float* scale = grad_logit + at;
    float* to = grad_x + t * shape.width;
    combine<W, 1>(&rows, &scale, shape.path(), 0, shape.width, false, &to);
  }
};

// Columns of a row whose sum over tokens stays in registers.
constexpr int64_t kColumns = 8 * kLanes;

// to[0 ... columns) = sum over visits of scale * rows[token][0 ... columns)
inline void weighted_sum(const float* rows, int64_t stride, int64_t columns, const int32_t* visit,
                         int64_t count, int64_t path, const float* scale, float* to) {
  if (columns < kColumns) {
    for (int64_t i = 0; i < columns; ++i) to[i] = 0;
    for (int64_t v = 0; v < count; ++v)
      for (int64_t i = 0; i < columns; ++i)
        to[i] += scale[visit[v]] * rows[visit[v] / path * stride + i];
    return;
  }
  Vec total[8] = {};
  for (int64_t v = 0; v < count; ++v) {
    const float* row = rows + visit[v] / path * stride;
    const Vec value = broadcast(scale[visit[v]]);
    for (int i = 0; i < 8; ++i) total[i] += value * load(row + i * kLanes);
  }
  for (int i = 0; i < 8; ++i) store(to + i * kLanes, total[i]);
}

template <class W>
void run_backward(const Backward<W>& f, xla::ffi::ThreadPool& pool) {
  const Shape& s = f.shape;
  const int64_t visits = s.tokens * s.path(), nodes = s.trees * s.nodes();
  std::vector<float> grad_logit(visits), value(visits);
  constexpr int64_t kBlock = 16;
  parallel_for(pool, (s.tokens + kBlock - 1) / kBlock, [&](int64_t task) {
    std::vector<float> scratch(s.padded());
    const int64_t begin = task * kBlock, end = std::min(begin + kBlock, s.tokens);
    for (int64_t t = begin; t < end; ++t) f.token(t, grad_logit.data(), scratch.data());
    activate(s.activation, f.logit + begin * s.path(), value.data() + begin * s.path(),
             (end - begin) * s.path());
  });
  // Visits sorted by node, in the order of tokens: sums do not depend on the number of threads.
  std::vector<int32_t> visit(visits);
  std::vector<int64_t> starts(nodes + 1, 0);
  for (int64_t v = 0; v < visits; ++v) ++starts[f.node[v] + 1];
  for (int64_t n = 0; n < nodes; ++n) starts[n + 1] += starts[n];
  std::vector<int64_t> place(starts.begin(), starts.end() - 1);
  for (int64_t v = 0; v < visits; ++v) visit[place[f.node[v]]++] = v;
  parallel_for(pool, nodes, [&](int64_t n) {
    const int32_t* mine = visit.data() + starts[n];
    const int64_t count = starts[n + 1] - starts[n];
    float bias = 0;
    for (int64_t v = 0; v < count; ++v) bias += grad_logit[mine[v]];
    f.grad_bias[n] = bias;
    for (int64_t i = 0; i < s.width; i += kColumns) {
      const int64_t columns = std::min(kColumns, s.width - i), to = n * s.width + i;
      weighted_sum(f.x + i, s.width, columns, mine, count, s.path(), grad_logit.data(),
                   f.grad_in + to);
      weighted_sum(f.grad_y + i, s.width, columns, mine, count, s.path(), value.data(),
                   f.grad_out + to);
    }
  });
}

}  // namespace fff
