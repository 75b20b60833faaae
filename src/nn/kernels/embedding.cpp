// Gradients of a table, row by row of the table.
#include "nn/kernels/embedding.hpp"

#include "nn/kernels/cuda/embedding.hpp"
#include "nn/kernels/parallel.hpp"

#include <ATen/ops/embedding.h>
#include <ATen/ops/zeros.h>

#include <numeric>
#include <vector>

namespace colossal::kernels {

namespace {

/// Where each row of the table was looked up: places[first[r]] to places[first[r + 1]], ascending.
struct Places {
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> places;
};

Places sort_by_row(const at::Tensor& indices_m, std::int64_t rows) {
  const auto* const index = indices_m.const_data_ptr<std::int64_t>();
  const std::int64_t count = indices_m.numel();
  Places sorted;
  sorted.first.assign(static_cast<std::size_t>(rows) + 1, 0);
  for (std::int64_t i = 0; i < count; ++i) {
    ++sorted.first[static_cast<std::size_t>(index[i]) + 1];
  }
  std::partial_sum(sorted.first.begin(), sorted.first.end(), sorted.first.begin());
  sorted.places.resize(static_cast<std::size_t>(count));
  std::vector<std::int64_t> next = sorted.first;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t place = next[static_cast<std::size_t>(index[i])]++;
    sorted.places[static_cast<std::size_t>(place)] = i;
  }
  return sorted;
}

template <class S>
struct Args {
  const S* grad;
  const std::int64_t* first;
  const std::int64_t* places;
  S* out;
  std::int64_t hidden;
};

/// Adds gradient row `place` to `sum`.
template <class S>
[[gnu::always_inline]] inline void add_row(const Args<S>& a,
                                           Wide<S>* __restrict sum,
                                           std::int64_t place) {
  const S* __restrict grad = a.grad + place * a.hidden;
  for (std::int64_t i = 0; i < a.hidden; ++i) {
    sum[i] += load(grad[i]);
  }
}

/// Rows [begin, end) of the table; `sum` holds one row.
template <class S>
[[gnu::always_inline]] inline void add_rows(const Args<S>& a,
                                            Wide<S>* __restrict sum,
                                            std::int64_t begin,
                                            std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    if (a.first[r] == a.first[r + 1]) {
      continue;  // the result starts as zero
    }
    std::fill_n(sum, a.hidden, Wide<S>{0});
    for (std::int64_t p = a.first[r]; p < a.first[r + 1]; ++p) {
      add_row(a, sum, a.places[p]);
    }
    S* __restrict out = a.out + r * a.hidden;
    for (std::int64_t i = 0; i < a.hidden; ++i) {
      out[i] = store<S>(sum[i]);
    }
  }
}

// One entry per dtype: target_clones works on plain functions only.

COLOSSAL_VECTOR_CLONES void add(const Args<float>& a, float* s, std::int64_t b, std::int64_t e) {
  add_rows(a, s, b, e);
}
void add(const Args<double>& a, double* s, std::int64_t b, std::int64_t e) {
  add_rows(a, s, b, e);
}
COLOSSAL_VECTOR_CLONES void add(const Args<c10::BFloat16>& a,
                                float* s,
                                std::int64_t b,
                                std::int64_t e) {
  add_rows(a, s, b, e);
}
COLOSSAL_VECTOR_CLONES void add(const Args<c10::Half>& a,
                                float* s,
                                std::int64_t b,
                                std::int64_t e) {
  add_rows(a, s, b, e);
}

}  // namespace

at::Tensor embedding_forward(const at::Tensor& weight_rh, const at::Tensor& indices) {
  return weight_rh.is_cuda() ? cuda::embedding_forward(weight_rh, indices)
                             : at::embedding(weight_rh, indices);
}

at::Tensor embedding_backward(const at::Tensor& grad_mh,
                              const at::Tensor& indices_m,
                              std::int64_t rows) {
  if (grad_mh.is_cuda()) {
    return cuda::embedding_backward(grad_mh, indices_m, rows);
  }
  const std::int64_t hidden = grad_mh.size(1);
  const Places sorted = sort_by_row(indices_m, rows);
  at::Tensor out_rh = at::zeros({rows, hidden}, grad_mh.options());
  with_floating(grad_mh, [&]<class S>(S) {
    const Args<S> args{grad_mh.const_data_ptr<S>(),
                       sorted.first.data(),
                       sorted.places.data(),
                       out_rh.mutable_data_ptr<S>(),
                       hidden};
    parallel_rows(rows, hidden, [&](std::int64_t begin, std::int64_t end) {
      std::vector<Wide<S>> sum(static_cast<std::size_t>(hidden));
      add(args, sum.data(), begin, end);
    });
  });
  return out_rh;
}

}  // namespace colossal::kernels
