// LayerNorm rows, vectorised for fp32, bf16 and fp16; statistics and sums in fp32 at least.
#include "nn/kernels/layer_norm.hpp"

#include "nn/kernels/cuda/layer_norm.hpp"
#include "nn/kernels/parallel.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <cmath>

namespace colossal::kernels {

namespace {

template <class S>
struct Forward {
  const S* x;
  const S* weight;
  const S* bias;
  S* y;
  Wide<S>* mean;
  Wide<S>* rstd;
  std::int64_t hidden;
  Wide<S> eps;
};

template <class S>
[[gnu::always_inline]] inline void forward_rows(const Forward<S>& a,
                                                std::int64_t begin,
                                                std::int64_t end) {
  using T = Wide<S>;
  const auto h = static_cast<T>(a.hidden);
  for (std::int64_t r = begin; r < end; ++r) {
    const S* __restrict x = a.x + r * a.hidden;
    S* __restrict y = a.y + r * a.hidden;
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < a.hidden; ++i) {
      sum += load(x[i]);
    }
    const T mean = sum / h;
    T squares = 0;
#pragma omp simd reduction(+ : squares)
    for (std::int64_t i = 0; i < a.hidden; ++i) {
      squares += (load(x[i]) - mean) * (load(x[i]) - mean);
    }
    const T rstd = T{1} / std::sqrt(squares / h + a.eps);
    for (std::int64_t i = 0; i < a.hidden; ++i) {
      y[i] = store<S>((load(x[i]) - mean) * rstd * load(a.weight[i]) + load(a.bias[i]));
    }
    a.mean[r] = mean;
    a.rstd[r] = rstd;
  }
}

template <class S>
struct Backward {
  const S* grad;
  const S* x;
  const S* weight;
  const Wide<S>* mean;
  const Wide<S>* rstd;
  const S* residual;  // may be null
  S* x_grad;
  Wide<S>* partial;  // per thread: weight gradient, bias gradient
  std::int64_t hidden;
};

template <class S>
[[gnu::always_inline]] inline void backward_row(const Backward<S>& a,
                                                Wide<S>* __restrict sums,
                                                std::int64_t r) {
  using T = Wide<S>;
  const T scale = T{1} / static_cast<T>(a.hidden);
  const S* __restrict weight = a.weight;
  const S* __restrict grad = a.grad + r * a.hidden;
  const S* __restrict x = a.x + r * a.hidden;
  S* __restrict out = a.x_grad + r * a.hidden;
  const T mean = a.mean[r];
  const T rstd = a.rstd[r];
  T along_one = 0;  // mean of dy w, and of dy w x^: the two directions a normalised row cannot move
  T along_x = 0;
#pragma omp simd reduction(+ : along_one, along_x)
  for (std::int64_t i = 0; i < a.hidden; ++i) {
    const T centred = (load(x[i]) - mean) * rstd;
    const T g = load(grad[i]) * load(weight[i]);
    along_one += g;
    along_x += g * centred;
    sums[i] += load(grad[i]) * centred;
    sums[a.hidden + i] += load(grad[i]);
  }
  along_one *= scale;
  along_x *= scale;
  const S* __restrict residual = a.residual == nullptr ? nullptr : a.residual + r * a.hidden;
  const auto slope = [&](std::int64_t i) {
    const T centred = (load(x[i]) - mean) * rstd;
    return (load(grad[i]) * load(weight[i]) - along_one - centred * along_x) * rstd;
  };
  if (residual == nullptr) {
    for (std::int64_t i = 0; i < a.hidden; ++i) {
      out[i] = store<S>(slope(i));
    }
    return;
  }
  for (std::int64_t i = 0; i < a.hidden; ++i) {  // added before the result is rounded to its dtype
    out[i] = store<S>(slope(i) + load(residual[i]));
  }
}

template <class S>
[[gnu::always_inline]] inline void backward_rows(const Backward<S>& a,
                                                 Wide<S>* __restrict sums,
                                                 std::int64_t begin,
                                                 std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    backward_row(a, sums, r);
  }
}

// One entry per dtype: target_clones works on plain functions only, and fp64 needs no vectors.

COLOSSAL_VECTOR_CLONES void forward(const Forward<float>& a, std::int64_t b, std::int64_t e) {
  forward_rows(a, b, e);
}
void forward(const Forward<double>& a, std::int64_t b, std::int64_t e) {
  forward_rows(a, b, e);
}
COLOSSAL_VECTOR_CLONES void forward(const Forward<c10::BFloat16>& a,
                                    std::int64_t b,
                                    std::int64_t e) {
  forward_rows(a, b, e);
}
COLOSSAL_VECTOR_CLONES void forward(const Forward<c10::Half>& a, std::int64_t b, std::int64_t e) {
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
COLOSSAL_VECTOR_CLONES void backward(const Backward<c10::BFloat16>& a,
                                     float* sums,
                                     std::int64_t b,
                                     std::int64_t e) {
  backward_rows(a, sums, b, e);
}
COLOSSAL_VECTOR_CLONES void backward(const Backward<c10::Half>& a,
                                     float* sums,
                                     std::int64_t b,
                                     std::int64_t e) {
  backward_rows(a, sums, b, e);
}

}  // namespace

LayerNormResult layer_norm_forward(const at::Tensor& x_mh,
                                   const at::Tensor& weight_h,
                                   const at::Tensor& bias_h,
                                   double eps) {
  if (x_mh.is_cuda()) {
    return cuda::layer_norm_forward(x_mh, weight_h, bias_h, eps);
  }
  const std::int64_t rows = x_mh.size(0);
  const at::TensorOptions wide = x_mh.options().dtype(wide_dtype(x_mh.scalar_type()));
  LayerNormResult result{at::empty_like(x_mh), at::empty({rows}, wide), at::empty({rows}, wide)};
  with_floating(x_mh, [&]<class T>(T) {
    const Forward<T> args{x_mh.const_data_ptr<T>(),
                          weight_h.const_data_ptr<T>(),
                          bias_h.const_data_ptr<T>(),
                          result.y_mh.mutable_data_ptr<T>(),
                          result.mean_m.mutable_data_ptr<Wide<T>>(),
                          result.rstd_m.mutable_data_ptr<Wide<T>>(),
                          x_mh.size(1),
                          static_cast<Wide<T>>(eps)};
    parallel_rows(rows, args.hidden, [&](std::int64_t b, std::int64_t e) { forward(args, b, e); });
  });
  return result;
}

LayerNormGrad layer_norm_backward(const at::Tensor& grad_mh,
                                  const LayerNormSaved& saved,
                                  const at::Tensor& residual_mh) {
  if (grad_mh.is_cuda()) {
    return cuda::layer_norm_backward(grad_mh, saved, residual_mh);
  }
  const std::int64_t rows = grad_mh.size(0);
  const std::int64_t hidden = grad_mh.size(1);
  at::Tensor x_grad = at::empty_like(grad_mh);
  // one partial sum per thread, added in thread order: the result depends on their number only
  at::Tensor sums = at::zeros({at::get_num_threads(), 2, hidden}, saved.mean_m.options());
  with_floating(grad_mh, [&]<class T>(T) {
    const Backward<T> args{grad_mh.const_data_ptr<T>(),
                           saved.x_mh.const_data_ptr<T>(),
                           saved.weight_h.const_data_ptr<T>(),
                           saved.mean_m.const_data_ptr<Wide<T>>(),
                           saved.rstd_m.const_data_ptr<Wide<T>>(),
                           residual_mh.defined() ? residual_mh.const_data_ptr<T>() : nullptr,
                           x_grad.mutable_data_ptr<T>(),
                           sums.mutable_data_ptr<Wide<T>>(),
                           hidden};
    parallel_rows(rows, hidden, [&](std::int64_t begin, std::int64_t end) {
      backward(args, args.partial + at::get_thread_num() * 2 * hidden, begin, end);
    });
  });
  const at::Tensor total = sums.sum(0);
  return {std::move(x_grad), total.select(0, 0), total.select(0, 1)};
}

}  // namespace colossal::kernels
