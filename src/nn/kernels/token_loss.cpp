// Rows of cross entropy, vectorised for fp32, bf16 and fp16; sums in fp32 at least.
#include "nn/kernels/token_loss.hpp"

#include "core/batch.hpp"
#include "nn/kernels/cuda/token_loss.hpp"
#include "nn/kernels/parallel.hpp"
#include "nn/kernels/vector_math.hpp"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace colossal::kernels {

namespace {

template <class S>
inline constexpr double kLossGradScale = std::is_same_v<S, c10::Half> ? kHalfLossGradScale : 1;

template <class S>
struct Args {
  S* logits;
  const std::int64_t* labels;
  std::int64_t width;  // padded
  std::int64_t vocabulary;
  bool want_grad;
};

/// The gradient of a row in place of its logits z: (softmax(z) - onehot) * kLossGradScale.
template <class S>
[[gnu::always_inline]] inline void write_gradient(
    S* __restrict z, std::int64_t vocabulary, std::int64_t label, Wide<S> top, Wide<S> sum) {
  using T = Wide<S>;
  constexpr T kScale = T(kLossGradScale<S>);
  const T inverse = kScale / sum;
  const T at_label = vector_exp(load(z[label]) - top) * inverse - kScale;
  for (std::int64_t v = 0; v < vocabulary; ++v) {
    z[v] = store<S>(vector_exp(load(z[v]) - top) * inverse);
  }
  z[label] = store<S>(at_label);
}

/// The same for wide elements, where z holds exp(z - top) already: nothing is rounded on the way.
template <class T>
[[gnu::always_inline]] inline void normalise(T* __restrict z,
                                             std::int64_t vocabulary,
                                             std::int64_t label,
                                             T sum) {
  const T inverse = T{1} / sum;
  for (std::int64_t v = 0; v < vocabulary; ++v) {
    z[v] *= inverse;
  }
  z[label] -= T{1};
}

/// Sum of exp(z - top), which takes the place of z.
template <class T>
[[gnu::always_inline]] inline T exponentials(T* __restrict z, std::int64_t vocabulary, T top) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t v = 0; v < vocabulary; ++v) {
    z[v] = vector_exp(z[v] - top);
    sum += z[v];
  }
  return sum;
}

/// -log softmax(z)[label]; with want_grad, z becomes (softmax - onehot) * kLossGradScale.
template <class S>
[[gnu::always_inline]] inline double row_loss(const Args<S>& a, std::int64_t r) {
  using T = Wide<S>;
  S* __restrict z = a.logits + r * a.width;
  const std::int64_t label = a.labels[r];
  T top = load(z[0]);
#pragma omp simd reduction(max : top)
  for (std::int64_t v = 0; v < a.vocabulary; ++v) {
    const T value = load(z[v]);
    top = value > top ? value : top;
  }
  const T target = load(z[label]);
  T sum = 0;
  if constexpr (!kIsHalf<S>) {
    if (a.want_grad) {
      sum = exponentials(z, a.vocabulary, top);
      normalise(z, a.vocabulary, label, sum);
      return std::log(static_cast<double>(sum)) + static_cast<double>(top - target);
    }
  }
#pragma omp simd reduction(+ : sum)
  for (std::int64_t v = 0; v < a.vocabulary; ++v) {
    sum += vector_exp(load(z[v]) - top);
  }
  if constexpr (kIsHalf<S>) {
    if (a.want_grad) {
      write_gradient(z, a.vocabulary, label, top, sum);
    }
  }
  return std::log(static_cast<double>(sum)) + static_cast<double>(top - target);
}

template <class S>
[[gnu::always_inline]] inline double rows_loss(const Args<S>& a,
                                               std::int64_t begin,
                                               std::int64_t end) {
  double loss = 0;
  for (std::int64_t r = begin; r < end; ++r) {
    const bool ignored = a.labels[r] == kIgnoreLabel;
    loss += ignored ? 0 : row_loss(a, r);
    if (a.want_grad) {  // an ignored row, and the padding of the others
      S* const z = a.logits + r * a.width;
      std::fill(z + (ignored ? 0 : a.vocabulary), z + a.width, store<S>(Wide<S>{0}));
    }
  }
  return loss;
}

COLOSSAL_VECTOR_CLONES double part_loss(const Args<float>& a, std::int64_t b, std::int64_t e) {
  return rows_loss(a, b, e);
}
double part_loss(const Args<double>& a, std::int64_t b, std::int64_t e) {
  return rows_loss(a, b, e);
}
COLOSSAL_VECTOR_CLONES double part_loss(const Args<c10::BFloat16>& a,
                                        std::int64_t b,
                                        std::int64_t e) {
  return rows_loss(a, b, e);
}
COLOSSAL_VECTOR_CLONES double part_loss(const Args<c10::Half>& a, std::int64_t b, std::int64_t e) {
  return rows_loss(a, b, e);
}

void check_labels(const at::Tensor& labels_m, std::int64_t vocabulary) {
  const std::int64_t* const labels = labels_m.const_data_ptr<std::int64_t>();
  for (std::int64_t r = 0; r < labels_m.numel(); ++r) {
    check(labels[r] == kIgnoreLabel || (labels[r] >= 0 && labels[r] < vocabulary),
          ErrorKind::data,
          "label-range",
          "label {} of token {} is outside a vocabulary of {}; check the data or model.vocab_size",
          labels[r],
          r,
          vocabulary);
  }
}

}  // namespace

double loss_grad_scale(at::ScalarType dtype) noexcept {
  return dtype == at::kHalf ? kHalfLossGradScale : 1;
}

double token_loss(at::Tensor& logits_mv,
                  const at::Tensor& labels_m,
                  std::int64_t vocabulary,
                  bool want_grad) {
  if (logits_mv.is_cuda()) {
    return cuda::token_loss(logits_mv, labels_m, vocabulary, want_grad).item<double>();
  }
  check_labels(labels_m, vocabulary);
  // one partial sum per thread, added in thread order: the result depends on their number only
  std::vector<double> sums(static_cast<std::size_t>(at::get_num_threads()), 0.0);
  with_floating(logits_mv, [&]<class T>(T) {
    const Args<T> args{logits_mv.mutable_data_ptr<T>(),
                       labels_m.const_data_ptr<std::int64_t>(),
                       logits_mv.size(1),
                       vocabulary,
                       want_grad};
    parallel_rows(logits_mv.size(0), args.width, [&](std::int64_t begin, std::int64_t end) {
      sums[static_cast<std::size_t>(at::get_thread_num())] += part_loss(args, begin, end);
    });
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

at::Tensor token_loss_tensor(at::Tensor& logits_mv,
                             const at::Tensor& labels_m,
                             std::int64_t vocabulary,
                             bool want_grad) {
  if (logits_mv.is_cuda()) {
    return cuda::token_loss(logits_mv, labels_m, vocabulary, want_grad);
  }
  return at::scalar_tensor(token_loss(logits_mv, labels_m, vocabulary, want_grad),
                           logits_mv.options().dtype(wide_dtype(logits_mv.scalar_type())));
}

void scale_loss_grad(at::Tensor& logits_grad, const at::Tensor& loss_grad) {
  const double scale = loss_grad_scale(logits_grad.scalar_type());
  if (logits_grad.is_cuda()) {
    cuda::scale_loss_grad(logits_grad, loss_grad, 1 / scale);
  } else {
    logits_grad.mul_(loss_grad.item<double>() / scale);
  }
}

}  // namespace colossal::kernels
