// Attention over blocks of query rows, vectorised for fp32.
#include "nn/kernels/attention_rows.hpp"

#include "nn/kernels/parallel.hpp"
#include "nn/kernels/tile.hpp"
#include "nn/kernels/vector_math.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace colossal::kernels {

namespace {

constexpr std::int64_t kForwardRows = 12;   // query rows at a time
constexpr std::int64_t kBackwardRows = 36;  // more: products over query rows want depth

std::int64_t round_up(std::int64_t n) {
  return (n + kVector - 1) / kVector * kVector;
}

struct Sizes {
  std::int64_t sequence;
  std::int64_t head_dim;
  std::int64_t padded;  // sequence rounded up to whole vectors
  std::int64_t group;   // q heads per k, v head
  float scale;
  bool causal;
};

/// Rows of one head in a packed tensor.
struct Head {
  const float* rows;
  std::int64_t stride;
};

/// Query rows [begin, end) and the keys [first, keys) that any of them sees; `first` is rounded
/// down to whole vectors.
struct RowBlock {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t first;
  std::int64_t keys;
};

/// `starts`: first key of each query of this sample, nullptr if all see the first.
RowBlock row_block(const Sizes& s,
                   const std::int64_t* starts,
                   std::int64_t begin,
                   std::int64_t rows) {
  const std::int64_t end = std::min(begin + rows, s.sequence);
  const std::int64_t first = starts == nullptr ? 0 : starts[begin] / kVector * kVector;
  return {begin, end, first, s.causal ? end : s.sequence};
}

/// Keys [first, end) that query i sees.
struct Visible {
  std::int64_t first;
  std::int64_t end;
};

[[gnu::always_inline]] inline Visible visible_keys(const Sizes& s,
                                                   const std::int64_t* starts,
                                                   std::int64_t i) {
  return {starts == nullptr ? 0 : starts[i], s.causal ? i + 1 : s.sequence};
}

/// to[d][j] = from row j, element d; columns beyond the sequence are zero.
[[gnu::always_inline]] inline void transpose(const Head& from, const Sizes& s, float* to) {
  for (std::int64_t d = 0; d < s.head_dim; ++d) {
    float* const row = to + d * s.padded;
    for (std::int64_t j = 0; j < s.sequence; ++j) {
      row[j] = from.rows[j * from.stride + d];
    }
    std::fill(row + s.sequence, row + s.padded, 0.0F);
  }
}

/// to[i][j] = row (begin + i) of `rows` times column j of `columns` [head_dim][padded], for the
/// keys j of the block.
[[gnu::always_inline]] inline void row_products(
    const Head& rows, const float* columns, const Sizes& s, const RowBlock& block, float* to) {
  multiply({{rows.rows + block.begin * rows.stride, rows.stride, 1},
            columns + block.first,
            s.padded,
            s.head_dim,
            to + block.first,
            s.padded,
            false},
           block.end - block.begin,
           round_up(block.keys) - block.first);
}

/// Zero at the keys of the block that the query does not see.
[[gnu::always_inline]] inline void hide(float* row, const RowBlock& block, const Visible& keys) {
  std::fill(row + block.first, row + keys.first, 0.0F);
  std::fill(row + keys.end, row + round_up(block.keys), 0.0F);
}

/// Scores of one row become exp(scale * (score - max)); returns {their sum, scale * max}.
[[gnu::always_inline]] inline std::pair<float, float> exponentials(float* __restrict row,
                                                                   const Visible& keys,
                                                                   float scale) {
  float top = row[keys.first];
#pragma omp simd reduction(max : top)
  for (std::int64_t j = keys.first; j < keys.end; ++j) {
    top = row[j] > top ? row[j] : top;
  }
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = keys.first; j < keys.end; ++j) {
    row[j] = vector_exp(scale * (row[j] - top));
    sum += row[j];
  }
  return {sum, scale * top};
}

struct ForwardHead {
  Head q;
  Head v;
  const float* k_columns;  // [head_dim][padded]
  float* scores;           // [kForwardRows][padded]
  float* context;          // row stride context_stride
  std::int64_t context_stride;
  float* log_sum;
  const std::int64_t* starts;  // of the sample; nullptr: one document
};

/// The scores of query row `i` become probabilities.
[[gnu::always_inline]] inline void softmax_row(const Sizes& s,
                                               const ForwardHead& h,
                                               const RowBlock& block,
                                               std::int64_t i) {
  float* const row = h.scores + (i - block.begin) * s.padded;
  const Visible keys = visible_keys(s, h.starts, i);
  const auto [sum, top] = exponentials(row, keys, s.scale);
  hide(row, block, keys);
  const std::int64_t width = round_up(block.keys);
  const float inverse = 1.0F / sum;
  for (std::int64_t j = block.first; j < width; ++j) {
    row[j] *= inverse;
  }
  h.log_sum[i] = top + std::log(sum);
}

[[gnu::always_inline]] inline void forward_head(const Sizes& s, const ForwardHead& h) {
  for (std::int64_t begin = 0; begin < s.sequence; begin += kForwardRows) {
    const RowBlock block = row_block(s, h.starts, begin, kForwardRows);
    row_products(h.q, h.k_columns, s, block, h.scores);
    for (std::int64_t i = block.begin; i < block.end; ++i) {
      softmax_row(s, h, block, i);
    }
    multiply({{h.scores + block.first, s.padded, 1},
              h.v.rows + block.first * h.v.stride,
              h.v.stride,
              block.keys - block.first,
              h.context + block.begin * h.context_stride,
              h.context_stride,
              false},
             block.end - block.begin,
             s.head_dim);
  }
}

/// One q head's part of backward; all gradient rows have stride `stride`.
struct BackwardHead {
  Head q, k, grad, context;
  const float* k_columns;
  const float* v_columns;
  const float* log_sum;
  float* probabilities;  // [kBackwardRows][padded]
  float* score_grads;    // the same
  float* q_grad;
  float* k_grad;
  float* v_grad;
  std::int64_t stride;
  const std::int64_t* starts;  // of the sample; nullptr: one document
};

/// probabilities and score gradients of one block of query rows.
[[gnu::always_inline]] inline void backward_scores(const Sizes& s,
                                                   const BackwardHead& h,
                                                   const RowBlock& block) {
  row_products(h.q, h.k_columns, s, block, h.probabilities);
  row_products(h.grad, h.v_columns, s, block, h.score_grads);
  for (std::int64_t i = block.begin; i < block.end; ++i) {
    const float* const grad = h.grad.rows + i * h.grad.stride;
    const float* const context = h.context.rows + i * h.context.stride;
    float delta = 0;  // sum over keys of p dp = context . grad
#pragma omp simd reduction(+ : delta)
    for (std::int64_t d = 0; d < s.head_dim; ++d) {
      delta += grad[d] * context[d];
    }
    float* __restrict p = h.probabilities + (i - block.begin) * s.padded;
    float* __restrict ds = h.score_grads + (i - block.begin) * s.padded;
    const Visible keys = visible_keys(s, h.starts, i);
    const float log_sum = h.log_sum[i];
    for (std::int64_t j = keys.first; j < keys.end; ++j) {
      p[j] = vector_exp(s.scale * p[j] - log_sum);
      ds[j] = p[j] * (ds[j] - delta) * s.scale;
    }
    hide(p, block, keys);
    hide(ds, block, keys);
  }
}

/// Blocks run from the last to the first: without documents the last one sees every key, so it may
/// overwrite the gradients of k and v (`fresh`: nothing is in them yet), and the others add.
[[gnu::always_inline]] inline void backward_head(const Sizes& s,
                                                 const BackwardHead& h,
                                                 bool fresh) {
  const std::int64_t last = (s.sequence - 1) / kBackwardRows * kBackwardRows;
  for (std::int64_t begin = last; begin >= 0; begin -= kBackwardRows) {
    const RowBlock block = row_block(s, h.starts, begin, kBackwardRows);
    const std::int64_t rows = block.end - block.begin;
    const std::int64_t keys = block.keys - block.first;
    const bool add = !fresh || begin != last;
    backward_scores(s, h, block);
    multiply({{h.score_grads + block.first, s.padded, 1},
              h.k.rows + block.first * h.k.stride,
              h.k.stride,
              keys,
              h.q_grad + block.begin * h.stride,
              h.stride,
              false},
             rows,
             s.head_dim);
    multiply({{h.score_grads + block.first, 1, s.padded},
              h.q.rows + block.begin * h.q.stride,
              h.q.stride,
              rows,
              h.k_grad + block.first * h.stride,
              h.stride,
              add},
             keys,
             s.head_dim);
    multiply({{h.probabilities + block.first, 1, s.padded},
              h.grad.rows + block.begin * h.grad.stride,
              h.grad.stride,
              rows,
              h.v_grad + block.first * h.stride,
              h.stride,
              add},
             keys,
             s.head_dim);
  }
}

COLOSSAL_FMA_CLONES void transpose_columns(const Head& from, const Sizes& s, float* to) {
  transpose(from, s, to);
}
COLOSSAL_FMA_CLONES void forward(const Sizes& s, const ForwardHead& h) {
  forward_head(s, h);
}
COLOSSAL_FMA_CLONES void backward(const Sizes& s, const BackwardHead& h, bool fresh) {
  backward_head(s, h, fresh);
}

Sizes sizes_of(const at::Tensor& qkv_bsd, const AttentionShape& shape) {
  return {qkv_bsd.size(1),
          shape.head_dim,
          round_up(qkv_bsd.size(1)),
          shape.num_heads / shape.num_kv_heads,
          static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim))),
          shape.causal};
}

/// Starts of sample b; nullptr without documents.
const std::int64_t* starts_of(const at::Tensor& starts_bs, std::int64_t b) {
  return starts_bs.defined() ? starts_bs.const_data_ptr<std::int64_t>() + b * starts_bs.size(1)
                             : nullptr;
}

}  // namespace

AttentionResult attention_rows_forward(const at::Tensor& qkv_bsd,
                                       const AttentionShape& shape,
                                       const at::Tensor& starts_bs) {
  const Sizes s = sizes_of(qkv_bsd, shape);
  const std::int64_t d = shape.head_dim;
  const std::int64_t width = qkv_bsd.size(2);
  const std::int64_t hidden = shape.num_heads * d;
  AttentionResult result{
      at::empty({qkv_bsd.size(0), s.sequence, hidden}, qkv_bsd.options()),
      at::empty({qkv_bsd.size(0), shape.num_heads, s.sequence}, qkv_bsd.options())};
  const float* const qkv = qkv_bsd.const_data_ptr<float>();
  float* const context = result.context_bsh.mutable_data_ptr<float>();
  float* const log_sum = result.log_sum.mutable_data_ptr<float>();
  const std::int64_t kv_heads = shape.num_kv_heads;
  const auto run_head = [&](std::int64_t b, std::int64_t m, float* columns, float* scores) {
    const float* const rows = qkv + b * s.sequence * width;
    transpose_columns({rows + hidden + m * d, width}, s, columns);
    for (std::int64_t n = m * s.group; n < (m + 1) * s.group; ++n) {
      forward(s,
              {{rows + n * d, width},
               {rows + hidden + (kv_heads + m) * d, width},
               columns,
               scores,
               context + b * s.sequence * hidden + n * d,
               hidden,
               log_sum + (b * shape.num_heads + n) * s.sequence,
               starts_of(starts_bs, b)});
    }
  };
  const auto run = [&](std::int64_t first, std::int64_t end) {
    std::vector<float> columns(static_cast<std::size_t>(d * s.padded));
    std::vector<float> scores(static_cast<std::size_t>(kForwardRows * s.padded));
    for (std::int64_t i = first; i < end; ++i) {  // one sample's k, v head
      run_head(i / kv_heads, i % kv_heads, columns.data(), scores.data());
    }
  };
  parallel_rows(qkv_bsd.size(0) * kv_heads, s.sequence * d * s.group, run);
  return result;
}

at::Tensor attention_rows_backward(const at::Tensor& grad_bsh,
                                   const at::Tensor& qkv_bsd,
                                   const AttentionResult& forward_result,
                                   const AttentionShape& shape,
                                   const at::Tensor& starts_bs) {
  const Sizes s = sizes_of(qkv_bsd, shape);
  const std::int64_t d = shape.head_dim;
  const std::int64_t width = qkv_bsd.size(2);
  const std::int64_t hidden = shape.num_heads * d;
  const std::int64_t kv_heads = shape.num_kv_heads;
  // A block of queries may leave keys before its documents out: they start at zero.
  at::Tensor qkv_grad = starts_bs.defined() ? at::zeros_like(qkv_bsd) : at::empty_like(qkv_bsd);
  const float* const qkv = qkv_bsd.const_data_ptr<float>();
  const float* const grad = grad_bsh.const_data_ptr<float>();
  const float* const context = forward_result.context_bsh.const_data_ptr<float>();
  const float* const log_sum = forward_result.log_sum.const_data_ptr<float>();
  float* const out = qkv_grad.mutable_data_ptr<float>();
  const auto run_head = [&](std::int64_t b, std::int64_t m, float* columns, float* scores) {
    const float* const rows = qkv + b * s.sequence * width;
    float* const grads = out + b * s.sequence * width;
    float* const v_columns = columns + d * s.padded;
    const std::int64_t k = hidden + m * d;
    const std::int64_t v = hidden + (kv_heads + m) * d;
    transpose_columns({rows + k, width}, s, columns);
    transpose_columns({rows + v, width}, s, v_columns);
    for (std::int64_t n = m * s.group; n < (m + 1) * s.group; ++n) {
      const std::int64_t place = b * s.sequence * hidden + n * d;
      backward(s,
               {{rows + n * d, width},
                {rows + k, width},
                {grad + place, hidden},
                {context + place, hidden},
                columns,
                v_columns,
                log_sum + (b * shape.num_heads + n) * s.sequence,
                scores,
                scores + kBackwardRows * s.padded,
                grads + n * d,
                grads + k,
                grads + v,
                width,
                starts_of(starts_bs, b)},
               n == m * s.group && !starts_bs.defined());
    }
  };
  const auto run = [&](std::int64_t first, std::int64_t end) {
    std::vector<float> columns(static_cast<std::size_t>(2 * d * s.padded));
    std::vector<float> scores(static_cast<std::size_t>(2 * kBackwardRows * s.padded));
    for (std::int64_t i = first; i < end; ++i) {  // one sample's k, v head
      run_head(i / kv_heads, i % kv_heads, columns.data(), scores.data());
    }
  };
  parallel_rows(qkv_bsd.size(0) * kv_heads, s.sequence * d * s.group, run);
  return qkv_grad;
}

}  // namespace colossal::kernels
