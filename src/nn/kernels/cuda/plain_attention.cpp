// Products around the softmax of plain attention. q heads that share a k, v head are rows of one
// matrix, so that no head is repeated.
#include "nn/kernels/cuda/plain_attention.hpp"

#include "nn/kernels/cuda/attention_launch.hpp"
#include "nn/kernels/cuda/glue.hpp"

#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>

namespace colossal::kernels::cuda {

namespace {

constexpr std::int64_t kScoreBytes = std::int64_t{256} << 20U;

/// Samples [begin, begin + count) of one call.
struct Samples {
  std::int64_t begin;
  std::int64_t count;
};

/// Calls `body` for all samples of a batch, so many at a time that their scores stay small.
template <class Body>
void for_samples(const at::Tensor& qkv_bsd, const AttentionShape& shape, const Body& body) {
  const std::int64_t batch = qkv_bsd.size(0);
  const std::int64_t sequence = qkv_bsd.size(1);
  const auto item = static_cast<std::int64_t>(qkv_bsd.element_size());
  const std::int64_t one = std::max<std::int64_t>(shape.num_heads * sequence * sequence * item, 1);
  const std::int64_t most = std::max<std::int64_t>(kScoreBytes / one, 1);
  for (std::int64_t b = 0; b < batch; b += most) {
    body(Samples{b, std::min(most, batch - b)});
  }
}

/// Heads [b,x,S,d] as matrices [b*m, x/m*S, d] of the m k, v heads; a copy unless m is x.
at::Tensor matrices(const at::Tensor& heads, const AttentionShape& shape) {
  return heads.reshape({heads.size(0) * shape.num_kv_heads, -1, shape.head_dim});
}

/// The other way round: matrices as heads [b,x,S,d].
at::Tensor as_heads(const at::Tensor& x, std::int64_t samples, std::int64_t heads) {
  return x.view({samples, heads, -1, x.size(2)});
}

/// [b,S,h] -> [b,n,S,d].
at::Tensor heads_of(const at::Tensor& x_bsh, const AttentionShape& shape) {
  return x_bsh.unflatten(2, {shape.num_heads, shape.head_dim}).transpose(1, 2);
}

ScoreRows rows_of(const at::Tensor& scores,
                  const AttentionShape& shape,
                  const at::Tensor& starts_bs,
                  const Samples& samples) {
  const std::int64_t sequence = scores.size(2);
  const std::int64_t* const starts =
      starts_bs.defined() ? starts_bs.const_data_ptr<std::int64_t>() + samples.begin * sequence
                          : nullptr;
  return {.scores = scores.mutable_data_ptr(),
          .rows = scores.size(0) * scores.size(1),
          .sequence = sequence,
          .rows_of_sample = shape.num_heads * sequence,
          .starts_bs = starts,
          .causal = shape.causal,
          .scale = 1 / std::sqrt(static_cast<double>(shape.head_dim))};
}

/// q, k and v of some samples as matrices.
QkvViews part_of(const at::Tensor& qkv_bsd, const AttentionShape& shape, const Samples& samples) {
  const QkvViews all = split_heads(qkv_bsd.narrow(0, samples.begin, samples.count), shape);
  return {matrices(all.q, shape), matrices(all.k, shape), matrices(all.v, shape)};
}

/// Gradients of some samples into `out`. `scores`: products of q and k, whose rows are `rows`.
void backward_part(const at::Tensor& grad_bsh,
                   const QkvViews& x,
                   const AttentionResult& forward,
                   const at::Tensor& scores,
                   const ScoreRows& rows,
                   const QkvViews& out) {
  const AttentionShape shape{out.q.size(1), out.k.size(1), out.q.size(3)};
  const std::int64_t samples = grad_bsh.size(0);
  const at::Tensor grad = matrices(heads_of(grad_bsh, shape), shape);
  const at::Tensor inner = heads_of(grad_bsh.mul(forward.context_bsh), shape).sum(-1).contiguous();
  const at::Tensor slope = at::bmm(grad, x.v.transpose(1, 2));
  const at::Tensor log_sum = forward.log_sum.contiguous();
  check_launch(launch_softmax_backward(element_type(scores),
                                       rows,
                                       log_sum.const_data_ptr(),
                                       inner.const_data_ptr(),
                                       slope.mutable_data_ptr(),
                                       stream_of(scores)),
               "attention_backward");
  const std::int64_t kv = shape.num_kv_heads;
  out.q.copy_(as_heads(at::bmm(slope, x.k), samples, shape.num_heads));
  out.k.copy_(as_heads(at::bmm(slope.transpose(1, 2), x.q), samples, kv));
  out.v.copy_(as_heads(at::bmm(scores.transpose(1, 2), grad), samples, kv));
}

}  // namespace

AttentionResult plain_attention_forward(const at::Tensor& qkv_bsd,
                                        const AttentionShape& shape,
                                        const at::Tensor& starts_bs) {
  const std::int64_t batch = qkv_bsd.size(0);
  const std::int64_t sequence = qkv_bsd.size(1);
  AttentionResult result{
      at::empty({batch, sequence, shape.num_heads * shape.head_dim}, qkv_bsd.options()),
      at::empty({batch, shape.num_heads, sequence}, qkv_bsd.options())};
  for_samples(qkv_bsd, shape, [&](const Samples& samples) {
    const QkvViews x = part_of(qkv_bsd, shape, samples);
    const at::Tensor scores = at::bmm(x.q, x.k.transpose(1, 2));
    const at::Tensor log_sum = result.log_sum.narrow(0, samples.begin, samples.count);
    check_launch(launch_softmax(element_type(scores),
                                rows_of(scores, shape, starts_bs, samples),
                                log_sum.mutable_data_ptr(),
                                stream_of(scores)),
                 "attention_forward");
    heads_of(result.context_bsh.narrow(0, samples.begin, samples.count), shape)
        .copy_(as_heads(at::bmm(scores, x.v), samples.count, shape.num_heads));
  });
  return result;
}

at::Tensor plain_attention_backward(const at::Tensor& grad_bsh,
                                    const at::Tensor& qkv_bsd,
                                    const AttentionResult& forward,
                                    const AttentionShape& shape,
                                    const at::Tensor& starts_bs) {
  at::Tensor qkv_grad = at::empty_like(qkv_bsd);
  for_samples(qkv_bsd, shape, [&](const Samples& samples) {
    const auto part = [&](const at::Tensor& x) {
      return x.narrow(0, samples.begin, samples.count);
    };
    const QkvViews x = part_of(qkv_bsd, shape, samples);
    const at::Tensor scores = at::bmm(x.q, x.k.transpose(1, 2));
    backward_part(part(grad_bsh),
                  x,
                  {part(forward.context_bsh), part(forward.log_sum)},
                  scores,
                  rows_of(scores, shape, starts_bs, samples),
                  split_heads(part(qkv_grad), shape));
  });
  return qkv_grad;
}

}  // namespace colossal::kernels::cuda
