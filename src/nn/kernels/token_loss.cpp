// Rows of cross entropy, vectorised for fp32.
#include "nn/kernels/token_loss.hpp"

#include "core/batch.hpp"
#include "nn/kernels/parallel.hpp"
#include "nn/kernels/vector_math.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace colossal::kernels {

namespace {

template <class T>
struct Args {
  T* logits;
  const std::int64_t* labels;
  std::int64_t width;  // padded
  std::int64_t vocabulary;
  bool want_grad;
};

/// -log softmax(z)[label]; with want_grad, z becomes softmax - onehot.
template <class T>
[[gnu::always_inline]] inline double row_loss(const Args<T>& a, std::int64_t r) {
  T* __restrict z = a.logits + r * a.width;
  const std::int64_t label = a.labels[r];
  T top = z[0];
#pragma omp simd reduction(max : top)
  for (std::int64_t v = 0; v < a.vocabulary; ++v) {
    top = z[v] > top ? z[v] : top;
  }
  const T target = z[label];
  T sum = 0;
  if (a.want_grad) {
#pragma omp simd reduction(+ : sum)
    for (std::int64_t v = 0; v < a.vocabulary; ++v) {
      z[v] = vector_exp(z[v] - top);
      sum += z[v];
    }
    const T inverse = T{1} / sum;
    for (std::int64_t v = 0; v < a.vocabulary; ++v) {
      z[v] *= inverse;
    }
    z[label] -= T{1};
  } else {
#pragma omp simd reduction(+ : sum)
    for (std::int64_t v = 0; v < a.vocabulary; ++v) {
      sum += vector_exp(z[v] - top);
    }
  }
  return std::log(static_cast<double>(sum)) + static_cast<double>(top - target);
}

template <class T>
[[gnu::always_inline]] inline double rows_loss(const Args<T>& a,
                                               std::int64_t begin,
                                               std::int64_t end) {
  double loss = 0;
  for (std::int64_t r = begin; r < end; ++r) {
    const bool ignored = a.labels[r] == kIgnoreLabel;
    loss += ignored ? 0 : row_loss(a, r);
    if (a.want_grad) {  // an ignored row, and the padding of the others
      T* const z = a.logits + r * a.width;
      std::fill(z + (ignored ? 0 : a.vocabulary), z + a.width, T{0});
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

double token_loss(at::Tensor& logits_mv,
                  const at::Tensor& labels_m,
                  std::int64_t vocabulary,
                  bool want_grad) {
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

}  // namespace colossal::kernels
