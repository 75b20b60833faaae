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
struct Args {
  S* logits;
  const std::int64_t* labels;
  std::int64_t width;  // padded
  std::int64_t vocabulary;
  bool want_grad;
  Wide<S> grad_factor;
  double smoothing;
  Wide<S> kept;    // of grad_factor at the label
  Wide<S> spread;  // of grad_factor in each column of the vocabulary
};

/// The largest logit of a row, and the sum of exp(z - top).
template <class T>
struct Softmax {
  T top;
  T sum;
};

/// The gradient of a row in place of its logits z: (softmax(z) - target) * grad_factor.
template <class S>
[[gnu::always_inline]] inline void write_gradient(const Args<S>& a,
                                                  S* __restrict z,
                                                  std::int64_t label,
                                                  const Softmax<Wide<S>>& softmax) {
  using T = Wide<S>;
  const T top = softmax.top;
  const T inverse = a.grad_factor / softmax.sum;
  const T spread = a.spread;
  const T at_label = vector_exp(load(z[label]) - top) * inverse - spread - a.kept;
  const std::int64_t vocabulary = a.vocabulary;
  for (std::int64_t v = 0; v < vocabulary; ++v) {
    z[v] = store<S>(vector_exp(load(z[v]) - top) * inverse - spread);
  }
  z[label] = store<S>(at_label);
}

/// The same for wide elements, where z holds exp(z - top) already: nothing is rounded on the way.
template <class T>
[[gnu::always_inline]] inline void normalise(const Args<T>& a,
                                             T* __restrict z,
                                             std::int64_t label,
                                             T sum) {
  const T inverse = a.grad_factor / sum;
  const T spread = a.spread;
  const std::int64_t vocabulary = a.vocabulary;
  for (std::int64_t v = 0; v < vocabulary; ++v) {
    z[v] = z[v] * inverse - spread;
  }
  z[label] -= a.kept;
}

/// Mean of z - top over the vocabulary.
template <class S>
[[gnu::always_inline]] inline double mean_distance(const S* __restrict z,
                                                   std::int64_t vocabulary,
                                                   Wide<S> top) {
  Wide<S> sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t v = 0; v < vocabulary; ++v) {
    sum += load(z[v]) - top;
  }
  return static_cast<double>(sum) / static_cast<double>(vocabulary);
}

/// What smoothing adds to the loss of a row: its share of (-mean log softmax + log softmax[label]).
template <class S>
[[gnu::always_inline]] inline double smoothed(const Args<S>& a,
                                              const S* z,
                                              std::int64_t label,
                                              Wide<S> top) {
  return a.smoothing == 0 ? 0
                          : a.smoothing * (static_cast<double>(load(z[label]) - top) -
                                           mean_distance(z, a.vocabulary, top));
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

/// The cross entropy of softmax(z) and the row's target, which without smoothing is
/// -log softmax(z)[label]; with want_grad, z becomes (softmax - target) * grad_factor.
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
  const double extra = smoothed(a, z, label, top);
  T sum = 0;
  if constexpr (!kIsHalf<S>) {
    if (a.want_grad) {
      sum = exponentials(z, a.vocabulary, top);
      normalise(a, z, label, sum);
      return std::log(static_cast<double>(sum)) + static_cast<double>(top - target) + extra;
    }
  }
#pragma omp simd reduction(+ : sum)
  for (std::int64_t v = 0; v < a.vocabulary; ++v) {
    sum += vector_exp(load(z[v]) - top);
  }
  if constexpr (kIsHalf<S>) {
    if (a.want_grad) {
      write_gradient(a, z, label, {top, sum});
    }
  }
  return std::log(static_cast<double>(sum)) + static_cast<double>(top - target) + extra;
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

/// z *= by. Not by ATen, which rounds the factor to 16 bits: that of a long batch is below what
/// fp16 knows.
template <class S>
void scale(S* z, std::int64_t count, Wide<S> by) {
  parallel_rows(count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      z[i] = store<S>(load(z[i]) * by);
    }
  });
}

}  // namespace

double loss_grad_scale(at::ScalarType dtype) noexcept {
  return dtype == at::kHalf ? 0x1p15 : 1;
}

double token_loss(at::Tensor& logits_mv,
                  const at::Tensor& labels_m,
                  std::int64_t vocabulary,
                  std::optional<double> grad_factor,
                  double smoothing) {
  if (logits_mv.is_cuda()) {
    return token_loss_tensor(logits_mv, labels_m, vocabulary, grad_factor, smoothing)
        .item<double>();
  }
  check_labels(labels_m, vocabulary);
  // one partial sum per thread, added in thread order: the result depends on their number only
  std::vector<double> sums(static_cast<std::size_t>(at::get_num_threads()), 0.0);
  with_floating(logits_mv, [&]<class T>(T) {
    const double factor = grad_factor.value_or(1);
    const Args<T> args{logits_mv.mutable_data_ptr<T>(),
                       labels_m.const_data_ptr<std::int64_t>(),
                       logits_mv.size(1),
                       vocabulary,
                       grad_factor.has_value(),
                       static_cast<Wide<T>>(factor),
                       smoothing,
                       static_cast<Wide<T>>(factor * (1 - smoothing)),
                       static_cast<Wide<T>>(factor * smoothing / static_cast<double>(vocabulary))};
    parallel_rows(logits_mv.size(0), args.width, [&](std::int64_t begin, std::int64_t end) {
      sums[static_cast<std::size_t>(at::get_thread_num())] += part_loss(args, begin, end);
    });
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

at::Tensor token_loss_tensor(at::Tensor& logits_mv,
                             const at::Tensor& labels_m,
                             std::int64_t vocabulary,
                             std::optional<double> grad_factor,
                             double smoothing) {
  if (logits_mv.is_cuda()) {
    return smoothing == 0
               ? cuda::token_loss(logits_mv, labels_m, vocabulary, grad_factor)
               : composed_token_loss(logits_mv, labels_m, vocabulary, grad_factor, smoothing);
  }
  return at::scalar_tensor(token_loss(logits_mv, labels_m, vocabulary, grad_factor, smoothing),
                           logits_mv.options().dtype(wide_dtype(logits_mv.scalar_type())));
}

at::Tensor composed_token_loss(at::Tensor& logits_mv,
                               const at::Tensor& labels_m,
                               std::int64_t vocabulary,
                               std::optional<double> grad_factor,
                               double smoothing) {
  const auto wide = wide_dtype(logits_mv.scalar_type());
  // The kernel answers a label that does not exist; here it must only be harmless.
  const at::Tensor columns_m1 = labels_m.clamp(0, vocabulary - 1).unsqueeze(1);
  const at::Tensor counts_m = labels_m.ne(kIgnoreLabel).to(wide);
  const at::Tensor known = logits_mv.narrow(1, 0, vocabulary);
  const at::Tensor at_label_m = known.gather(1, columns_m1).squeeze(1).to(wide);
  const at::Tensor mean_m = known.mean(at::IntArrayRef{1}, false, wide);
  const at::Tensor extra = at_label_m.sub(mean_m).mul(counts_m).sum().mul(smoothing);
  const at::Tensor loss = token_loss_tensor(logits_mv, labels_m, vocabulary, grad_factor);
  if (grad_factor) {
    const at::Tensor share_m1 = counts_m.mul(*grad_factor * smoothing).unsqueeze(1);
    known.sub_(share_m1.div(static_cast<double>(vocabulary)));
    known.scatter_add_(1, columns_m1, share_m1.to(logits_mv.scalar_type()));
  }
  return loss.add(extra);
}

void scale_loss_grad(at::Tensor& logits_grad, const at::Tensor& loss_grad, double grad_factor) {
  if (logits_grad.is_cuda()) {
    cuda::scale_loss_grad(logits_grad, loss_grad, grad_factor);
  } else if (const double factor = loss_grad.item<double>(); factor != grad_factor) {
    with_floating(logits_grad, [&]<class T>(T) {
      scale(logits_grad.mutable_data_ptr<T>(),
            logits_grad.numel(),
            static_cast<Wide<T>>(factor / grad_factor));
    });
  }
}

}  // namespace colossal::kernels
