// Which attention kernel runs? Our own for fp32, ATen's for the rest; 16 bits are widened.
#include "nn/kernels/attention.hpp"

#include "core/error.hpp"
#include "nn/kernels/attention_rows.hpp"
#include "nn/kernels/cuda/attention.hpp"
#include "nn/kernels/element.hpp"
#include "nn/kernels/tile.hpp"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

namespace colossal::kernels {

namespace {

bool own_kernel(const at::Tensor& qkv_bsd, const AttentionShape& shape) {
  return qkv_bsd.scalar_type() == at::kFloat && shape.head_dim % kVector == 0;
}

/// [B,m,S,d] -> [B,n,S,d]: each head n / m times.
at::Tensor repeat_heads(const at::Tensor& x, std::int64_t num_heads) {
  const std::int64_t kv = x.size(1);
  if (kv == num_heads) {
    return x;
  }
  return x.unsqueeze(2)
      .expand({x.size(0), kv, num_heads / kv, x.size(2), x.size(3)})
      .reshape({x.size(0), num_heads, x.size(2), x.size(3)});
}

/// The adjoint of repeat_heads.
at::Tensor sum_heads(const at::Tensor& grad, std::int64_t num_kv_heads) {
  if (grad.size(1) == num_kv_heads) {
    return grad;
  }
  return grad.unflatten(1, {num_kv_heads, grad.size(1) / num_kv_heads}).sum(2);
}

/// [B,S,h] -> [B,n,S,d].
at::Tensor heads_of(const at::Tensor& x_bsh, const AttentionShape& shape) {
  return x_bsh.unflatten(2, {shape.num_heads, shape.head_dim}).transpose(1, 2);
}

/// ATen's kernel on whole rows.
AttentionResult aten_forward(const at::Tensor& qkv_bsd, const AttentionShape& shape) {
  const QkvViews x = split_heads(qkv_bsd, shape);
  auto [out, log_sum] =
      at::_scaled_dot_product_flash_attention_for_cpu(x.q,
                                                      repeat_heads(x.k, shape.num_heads),
                                                      repeat_heads(x.v, shape.num_heads),
                                                      0.0,
                                                      shape.causal);
  return {out.transpose(1, 2).flatten(2), log_sum};
}

/// Its gradient, into the same rows of `qkv_grad`.
void aten_backward(const at::Tensor& grad_bsh,
                   const at::Tensor& qkv_bsd,
                   const AttentionResult& forward,
                   const AttentionShape& shape,
                   const at::Tensor& qkv_grad) {
  const QkvViews x = split_heads(qkv_bsd, shape);
  const auto [q_grad, k_grad, v_grad] =
      at::_scaled_dot_product_flash_attention_for_cpu_backward(heads_of(grad_bsh, shape),
                                                               x.q,
                                                               repeat_heads(x.k, shape.num_heads),
                                                               repeat_heads(x.v, shape.num_heads),
                                                               heads_of(forward.context_bsh, shape),
                                                               forward.log_sum,
                                                               0.0,
                                                               shape.causal);
  const QkvViews out = split_heads(qkv_grad, shape);
  out.q.copy_(q_grad);
  out.k.copy_(sum_heads(k_grad, shape.num_kv_heads));
  out.v.copy_(sum_heads(v_grad, shape.num_kv_heads));
}

/// Calls `body` with (sample, first token, tokens) of every document of every row.
template <class Body>
void for_each_document(const at::Tensor& starts_bs, const Body& body) {
  const std::int64_t sequence = starts_bs.size(1);
  const auto* starts = starts_bs.const_data_ptr<std::int64_t>();
  for (std::int64_t b = 0; b < starts_bs.size(0); ++b, starts += sequence) {
    for (std::int64_t end = sequence; end > 0;) {
      const std::int64_t begin = starts[end - 1];
      body(b, begin, end - begin);
      end = begin;
    }
  }
}

/// The part of x [B,...] that belongs to one document; `dim` is the sequence's.
at::Tensor document_of(const at::Tensor& x,
                       std::int64_t sample,
                       std::int64_t dim,
                       std::int64_t begin,
                       std::int64_t length) {
  return x.narrow(0, sample, 1).narrow(dim, begin, length);
}

/// ATen's kernel knows no documents: each is a call of its own.
AttentionResult aten_forward(const at::Tensor& qkv_bsd,
                             const AttentionShape& shape,
                             const at::Tensor& starts_bs) {
  const std::int64_t batch = qkv_bsd.size(0);
  const std::int64_t sequence = qkv_bsd.size(1);
  AttentionResult all{
      at::empty({batch, sequence, shape.num_heads * shape.head_dim}, qkv_bsd.options()),
      at::empty({batch, shape.num_heads, sequence}, qkv_bsd.options())};
  for_each_document(starts_bs, [&](std::int64_t b, std::int64_t begin, std::int64_t length) {
    const AttentionResult one = aten_forward(document_of(qkv_bsd, b, 1, begin, length), shape);
    document_of(all.context_bsh, b, 1, begin, length).copy_(one.context_bsh);
    document_of(all.log_sum, b, 2, begin, length).copy_(one.log_sum);
  });
  return all;
}

/// attention_forward() of fp32 or fp64.
AttentionResult wide_forward(const at::Tensor& qkv_bsd,
                             const AttentionShape& shape,
                             const at::Tensor& starts_bs) {
  if (own_kernel(qkv_bsd, shape)) {
    return attention_rows_forward(qkv_bsd, shape, starts_bs);
  }
  return starts_bs.defined() ? aten_forward(qkv_bsd, shape, starts_bs)
                             : aten_forward(qkv_bsd, shape);
}

/// attention_backward() of fp32 or fp64.
at::Tensor wide_backward(const at::Tensor& grad_bsh,
                         const at::Tensor& qkv_bsd,
                         const AttentionResult& forward,
                         const AttentionShape& shape,
                         const at::Tensor& starts_bs) {
  if (own_kernel(qkv_bsd, shape)) {
    return attention_rows_backward(grad_bsh, qkv_bsd, forward, shape, starts_bs);
  }
  at::Tensor qkv_grad = at::empty_like(qkv_bsd);
  if (!starts_bs.defined()) {
    aten_backward(grad_bsh, qkv_bsd, forward, shape, qkv_grad);
    return qkv_grad;
  }
  for_each_document(starts_bs, [&](std::int64_t b, std::int64_t begin, std::int64_t length) {
    const auto part = [&](const at::Tensor& x, std::int64_t dim) {
      return document_of(x, b, dim, begin, length);
    };
    aten_backward(part(grad_bsh, 1),
                  part(qkv_bsd, 1),
                  {part(forward.context_bsh, 1), part(forward.log_sum, 2).contiguous()},
                  shape,
                  part(qkv_grad, 1));
  });
  return qkv_grad;
}

}  // namespace

QkvViews split_heads(const at::Tensor& qkv_bsd, const AttentionShape& shape) {
  const auto part = [&](std::int64_t first, std::int64_t count) {
    return qkv_bsd.narrow(2, first * shape.head_dim, count * shape.head_dim)
        .unflatten(2, {count, shape.head_dim})
        .transpose(1, 2);
  };
  return {part(0, shape.num_heads),
          part(shape.num_heads, shape.num_kv_heads),
          part(shape.num_heads + shape.num_kv_heads, shape.num_kv_heads)};
}

bool attends_by_products(const AttentionShape& shape, at::ScalarType dtype, bool documents) {
  // FlashAttention and cuDNN: head sizes that are multiples of 8, 256 at most.
  return at::elementSize(dtype) > 2 || documents || shape.head_dim % 8 != 0 || shape.head_dim > 256;
}

AttentionResult attention_forward(const at::Tensor& qkv_bsd,
                                  const AttentionShape& shape,
                                  const at::Tensor& starts_bs) {
  check(!starts_bs.defined() || shape.causal,
        ErrorKind::internal,
        "attention-documents",
        "documents are told apart by causal attention only");
  if (qkv_bsd.is_cuda()) {
    return cuda::attention_forward(qkv_bsd, shape, starts_bs);
  }
  const at::Tensor wide_bsd = widened(qkv_bsd);
  AttentionResult result = wide_forward(wide_bsd, shape, starts_bs);
  result.context_bsh = result.context_bsh.to(qkv_bsd.scalar_type());
  return result;
}

at::Tensor attention_backward(const at::Tensor& grad_bsh,
                              const at::Tensor& qkv_bsd,
                              const AttentionResult& forward,
                              const AttentionShape& shape,
                              const at::Tensor& starts_bs) {
  if (qkv_bsd.is_cuda()) {
    return cuda::attention_backward(grad_bsh, qkv_bsd, forward, shape, starts_bs);
  }
  return wide_backward(widened(grad_bsh),
                       widened(qkv_bsd),
                       {widened(forward.context_bsh), forward.log_sum},
                       shape,
                       starts_bs)
      .to(qkv_bsd.scalar_type());
}

}  // namespace colossal::kernels
