// Fast feedforward layers for the CPU, as calls from compiled XLA programs.
#include "backward.h"
#include "schedule.h"

namespace ffi = xla::ffi;
using fff::Activation;
using fff::Schedule;
using fff::Shape;

namespace {

typedef ffi::Buffer<ffi::F32> Floats;
typedef ffi::Result<ffi::Buffer<ffi::F32>> FloatsOut;
typedef ffi::Buffer<ffi::S32> Ints;
typedef ffi::Result<ffi::Buffer<ffi::S32>> IntsOut;

Shape shape_of(const Floats& x, int64_t depth, int64_t trees, int64_t activation, bool right) {
  return {x.dimensions()[0], x.dimensions()[1], depth, trees, Activation(activation), right};
}

// Shapes are checked by the caller in Python; what is checked here would be memory errors.
template <class Buffer>
bool fits(const Shape& s, const Buffer& in, const Buffer& out) {
  const size_t wanted = s.trees * s.nodes() * s.width;
  return in.element_count() == wanted && out.element_count() == wanted &&
         in.element_type() == out.element_type();
}

template <class W>
void forward(ffi::ThreadPool& pool, const Shape& shape, const Floats& x, const ffi::AnyBuffer& in,
             const Floats& bias, const ffi::AnyBuffer& out, float* y, fff::Path path,
             Schedule schedule) {
  typedef const typename W::Stored* Rows;
  fff::run_forward<W>({shape, x.typed_data(), bias.typed_data(),
                       static_cast<Rows>(in.untyped_data()), static_cast<Rows>(out.untyped_data()),
                       y, path},
                      pool, schedule);
}

ffi::Error dispatch(ffi::ThreadPool& pool, const Shape& shape, const Floats& x,
                    const ffi::AnyBuffer& in, const Floats& bias, const ffi::AnyBuffer& out,
                    float* y, fff::Path path, Schedule schedule) {
  if (!fits(shape, in, out)) return ffi::Error::InvalidArgument("fff: tables do not fit the tree");
  if (shape.tokens == 0) return ffi::Error::Success();
  if (in.element_type() == ffi::F32)
    forward<fff::Float32>(pool, shape, x, in, bias, out, y, path, schedule);
  else if (in.element_type() == ffi::BF16)
    forward<fff::BFloat16>(pool, shape, x, in, bias, out, y, path, schedule);
  else
    return ffi::Error::InvalidArgument("fff: weights must be float32 or bfloat16");
  return ffi::Error::Success();
}

ffi::Error Forward(ffi::ThreadPool pool, Floats x, ffi::AnyBuffer in, Floats bias,
                   ffi::AnyBuffer out, FloatsOut y, int64_t depth, int64_t trees,
                   int64_t activation, bool ties_right, int64_t schedule) {
  const Shape shape = shape_of(x, depth, trees, activation, ties_right);
  const int64_t places = shape.tokens * shape.path();
  std::unique_ptr<int32_t[]> node(new int32_t[places]);
  std::unique_ptr<float[]> logit(new float[places]), value(new float[places]);
  return dispatch(pool, shape, x, in, bias, out, y->typed_data(),
                  {node.get(), logit.get(), value.get()}, Schedule(schedule));
}

ffi::Error ForwardWithPath(ffi::ThreadPool pool, Floats x, ffi::AnyBuffer in, Floats bias,
                           ffi::AnyBuffer out, FloatsOut y, IntsOut node, FloatsOut logit,
                           int64_t depth, int64_t trees, int64_t activation, bool ties_right,
                           int64_t schedule) {
  const Shape shape = shape_of(x, depth, trees, activation, ties_right);
  std::unique_ptr<float[]> value(new float[shape.tokens * shape.path()]);
  return dispatch(pool, shape, x, in, bias, out, y->typed_data(),
                  {node->typed_data(), logit->typed_data(), value.get()}, Schedule(schedule));
}

template <class W>
void backward(ffi::ThreadPool& pool, const Shape& shape, const Floats& x, const ffi::AnyBuffer& in,
              const ffi::AnyBuffer& out, const Ints& node, const Floats& logit,
              const Floats& grad_y, FloatsOut& grad_x, FloatsOut& grad_in, FloatsOut& grad_bias,
              FloatsOut& grad_out) {
  typedef const typename W::Stored* Rows;
  fff::run_backward<W>(
      {shape, x.typed_data(), grad_y.typed_data(), logit.typed_data(), node.typed_data(),
       static_cast<Rows>(in.untyped_data()), static_cast<Rows>(out.untyped_data()),
       grad_x->typed_data(), grad_in->typed_data(), grad_bias->typed_data(),
       grad_out->typed_data()},
      pool);
}

ffi::Error Backward(ffi::ThreadPool pool, Floats x, ffi::AnyBuffer in, ffi::AnyBuffer out,
                    Ints node, Floats logit, Floats grad_y, FloatsOut grad_x, FloatsOut grad_in,
                    FloatsOut grad_bias, FloatsOut grad_out, int64_t depth, int64_t trees,
                    int64_t activation) {
  const Shape shape = shape_of(x, depth, trees, activation, false);
  if (!fits(shape, in, out)) return ffi::Error::InvalidArgument("fff: tables do not fit the tree");
  if (in.element_type() == ffi::F32)
    backward<fff::Float32>(pool, shape, x, in, out, node, logit, grad_y, grad_x, grad_in,
                           grad_bias, grad_out);
  else if (in.element_type() == ffi::BF16)
    backward<fff::BFloat16>(pool, shape, x, in, out, node, logit, grad_y, grad_x, grad_in,
                            grad_bias, grad_out);
  else
    return ffi::Error::InvalidArgument("fff: weights must be float32 or bfloat16");
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(kpd_fff_forward, Forward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Floats>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<Floats>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<Floats>()
                                  .Attr<int64_t>("depth")
                                  .Attr<int64_t>("trees")
                                  .Attr<int64_t>("activation")
                                  .Attr<bool>("ties_right")
                                  .Attr<int64_t>("schedule"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(kpd_fff_forward_with_path, ForwardWithPath,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Floats>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<Floats>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<Floats>()
                                  .Ret<ffi::Buffer<ffi::S32>>()
                                  .Ret<Floats>()
                                  .Attr<int64_t>("depth")
                                  .Attr<int64_t>("trees")
                                  .Attr<int64_t>("activation")
                                  .Attr<bool>("ties_right")
                                  .Attr<int64_t>("schedule"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(kpd_fff_backward, Backward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Floats>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<Ints>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Attr<int64_t>("depth")
                                  .Attr<int64_t>("trees")
                                  .Attr<int64_t>("activation"));
