// Which attention kernel runs? Our own for fp32, ATen's for the rest.
#include "nn/kernels/attention.hpp"

#include "nn/kernels/attention_rows.hpp"
#include "nn/kernels/tile.hpp"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
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

AttentionResult attention_forward(const at::Tensor& qkv_bsd, const AttentionShape& shape) {
  if (own_kernel(qkv_bsd, shape)) {
    return attention_rows_forward(qkv_bsd, shape);
  }
  const QkvViews x = split_heads(qkv_bsd, shape);
  auto [out, log_sum] =
      at::_scaled_dot_product_flash_attention_for_cpu(x.q,
                                                      repeat_heads(x.k, shape.num_heads),
                                                      repeat_heads(x.v, shape.num_heads),
                                                      0.0,
                                                      shape.causal);
  return {out.transpose(1, 2).flatten(2), log_sum};
}

at::Tensor attention_backward(const at::Tensor& grad_bsh,
                              const at::Tensor& qkv_bsd,
                              const AttentionResult& forward,
                              const AttentionShape& shape) {
  if (own_kernel(qkv_bsd, shape)) {
    return attention_rows_backward(grad_bsh, qkv_bsd, forward, shape);
  }
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
  at::Tensor qkv_grad = at::empty_like(qkv_bsd);
  const QkvViews out = split_heads(qkv_grad, shape);
  out.q.copy_(q_grad);
  out.k.copy_(sum_heads(k_grad, shape.num_kv_heads));
  out.v.copy_(sum_heads(v_grad, shape.num_kv_heads));
  return qkv_grad;
}

}  // namespace colossal::kernels
