// LayerNorm rows, vectorised for fp32.
#include "nn/kernels/layer_norm.hpp"

#include "nn/kernels/parallel.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <cmath>

namespace colossal::kernels {

namespace {

template <class T>
struct Forward {
  const T* x;
  const T* weight;
  const T* bias;
  T* y;
  T* mean;
  T* rstd;
  std::int64_t hidden;
  T eps;
};

template <class T>
[[gnu::always_inline]] inline void forward_rows(const Forward<T>& a,
                                                std::int64_t begin,
                                                std::int64_t end) {
  const auto h = static_cast<T>(a.hidden);
  for (std::int64_t r = begin; r < end; ++r) {
    const T* __restrict x = a.x + r * a.hidden;
    T* __restrict y = a.y + r * a.hidden;
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < a.hidden; ++i) {
      sum += x[i];
    }
    const T mean = sum / h;
    T squares = 0;
#pragma omp simd reduction(+ : squares)
    for (std::int64_t i = 0; i < a.hidden; ++i) {
      squares += (x[i] - mean) * (x[i] - mean);
    }
    const T rstd = T{1} / std::sqrt(squares / h + a.eps);
    for (std::int64_t i = 0; i < a.hidden; ++i) {
      y[i] = (x[i] - mean) * rstd * a.weight[i] + a.bias[i];
    }
    a.mean[r] = mean;
    a.rstd[r] = rstd;
  }
}

template <class T>
struct Backward {
  const T* grad;
  const T* x;
  const T* weight;
  const T* mean;
  const T* rstd;
  const T* residual;  // may be null
  T* x_grad;
  T* partial;  // per thread: weight gradient, bias gradient
  std::int64_t hidden;
};

template <class T>
[[gnu::always_inline]] inline void backward_rows(const Backward<T>& a,
                                                 T* __restrict sums,
                                                 std::int64_t begin,
                                                 std::int64_t end) {
  const T scale = T{1} / static_cast<T>(a.hidden);
  const T* __restrict weight = a.weight;
  for (std::int64_t r = begin; r < end; ++r) {
    const T* __restrict grad = a.grad + r * a.hidden;
    const T* __restrict x = a.x + r * a.hidden;
    T* __restrict out = a.x_grad + r * a.hidden;
    const T mean = a.mean[r];
    const T rstd = a.rstd[r];
    T along_one =
        0;  // mean of dy w, and of dy w x^: the two directions a normalised row cannot move
    T along_x = 0;
#pragma omp simd reduction(+ : along_one, along_x)
    for (std::int64_t i = 0; i < a.hidden; ++i) {
      const T centred = (x[i] - mean) * rstd;
      const T g = grad[i] * weight[i];
      along_one += g;
      along_x += g * centred;
      sums[i] += grad[i] * centred;
      sums[a.hidden + i] += grad[i];
    }
    along_one *= scale;
    along_x *= scale;
    for (std::int64_t i = 0; i < a.hidden; ++i) {
      const T centred = (x[i] - mean) * rstd;
      out[i] = (grad[i] * weight[i] - along_one - centred * along_x) * rstd;
    }
    if (a.residual != nullptr) {
      const T* __restrict residual = a.residual + r * a.hidden;
      for (std::int64_t i = 0; i < a.hidden; ++i) {
        out[i] += residual[i];
      }
    }
  }
}

// One entry per dtype: target_clones works on plain functions only, and fp64 needs no vectors.

COLOSSAL_VECTOR_CLONES void forward(const Forward<float>& a, std::int64_t b, std::int64_t e) {
  forward_rows(a, b, e);
}
void forward(const Forward<double>& a, std::int64_t b, std::int64_t e) {
  forward_rows(a, b, e);
}

COLOSSAL_VECTOR_CLONES void backward(const Backward<float>& a,
                                     float* sums,
                                     std::int64_t b,
                                     std::int64_t e) {
  backward_rows(a, sums, b, e);
}
void backward(const Backward<double>& a, double* sums, std::int64_t b, std::int64_t e) {
  backward_rows(a, sums, b, e);
}

}  // namespace

LayerNormResult layer_norm_forward(const at::Tensor& x_mh,
                                   const at::Tensor& weight_h,
                                   const at::Tensor& bias_h,
                                   double eps) {
  const std::int64_t rows = x_mh.size(0);
  LayerNormResult result{
      at::empty_like(x_mh), at::empty({rows}, x_mh.options()), at::empty({rows}, x_mh.options())};
  with_floating(x_mh, [&]<class T>(T) {
    const Forward<T> args{x_mh.const_data_ptr<T>(),
                          weight_h.const_data_ptr<T>(),
                          bias_h.const_data_ptr<T>(),
                          result.y_mh.mutable_data_ptr<T>(),
                          result.mean_m.mutable_data_ptr<T>(),
                          result.rstd_m.mutable_data_ptr<T>(),
                          x_mh.size(1),
                          static_cast<T>(eps)};
    parallel_rows(rows, args.hidden, [&](std::int64_t b, std::int64_t e) { forward(args, b, e); });
  });
  return result;
}

LayerNormGrad layer_norm_backward(const at::Tensor& grad_mh,
                                  const LayerNormSaved& saved,
                                  const at::Tensor& residual_mh) {
  const std::int64_t rows = grad_mh.size(0);
  const std::int64_t hidden = grad_mh.size(1);
  at::Tensor x_grad = at::empty_like(grad_mh);
  // one partial sum per thread, added in thread order: the result depends on their number only
  at::Tensor sums = at::zeros({at::get_num_threads(), 2, hidden}, grad_mh.options());
  with_floating(grad_mh, [&]<class T>(T) {
    const Backward<T> args{grad_mh.const_data_ptr<T>(),
                           saved.x_mh.const_data_ptr<T>(),
                           saved.weight_h.const_data_ptr<T>(),
                           saved.mean_m.const_data_ptr<T>(),
                           saved.rstd_m.const_data_ptr<T>(),
                           residual_mh.defined() ? residual_mh.const_data_ptr<T>() : nullptr,
                           x_grad.mutable_data_ptr<T>(),
                           sums.mutable_data_ptr<T>(),
                           hidden};
    parallel_rows(rows, hidden, [&](std::int64_t begin, std::int64_t end) {
      backward(args, args.partial + at::get_thread_num() * 2 * hidden, begin, end);
    });
  });
  const at::Tensor total = sums.sum(0);
  return {std::move(x_grad), total.select(0, 0), total.select(0, 1)};
}

}  // namespace colossal::kernels
