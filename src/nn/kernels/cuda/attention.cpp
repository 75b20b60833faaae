// Which attention kernel runs on a GPU? cuDNN's for 16 bits where it knows the shape, then
// FlashAttention's, then plain products.
#include "nn/kernels/cuda/attention.hpp"

#include "nn/kernels/cuda/columns.hpp"
#include "nn/kernels/cuda/glue.hpp"
#include "nn/kernels/cuda/pack_launch.hpp"
#include "nn/kernels/cuda/packed_attention.hpp"
#include "nn/kernels/cuda/plain_attention.hpp"
#include "nn/kernels/element.hpp"

#include <ATen/Context.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

namespace colossal::kernels::cuda {

namespace {

enum class Backend : std::uint8_t { cudnn, flash, plain };

/// The same for forward and backward of a call, since backward needs what forward left.
Backend backend_of(const at::Tensor& qkv_bsd,
                   const AttentionShape& shape,
                   const at::Tensor& starts_bs) {
  if (attends_by_products(shape, qkv_bsd.scalar_type(), starts_bs.defined())) {
    return Backend::plain;
  }
  // cuDNN: head sizes of 128 at most in training; whole tiles of 64 tokens, for which it has a plan
  // on every card it supports.
  return shape.head_dim <= 128 && qkv_bsd.size(1) % 64 == 0 ? Backend::cudnn : Backend::flash;
}

/// [B,m,S,d] -> [B,n,S,d]: each head n / m times.
at::Tensor repeat_heads(const at::Tensor& x, std::int64_t num_heads) {
  return x.size(1) == num_heads
             ? x
             : x.unsqueeze(2)
                   .expand({x.size(0), x.size(1), num_heads / x.size(1), x.size(2), x.size(3)})
                   .reshape({x.size(0), num_heads, x.size(2), x.size(3)});
}

/// The adjoint of repeat_heads, summed in fp32.
at::Tensor sum_heads(const at::Tensor& grad, std::int64_t num_kv_heads) {
  return grad.size(1) == num_kv_heads
             ? grad
             : grad.unflatten(1, {num_kv_heads, grad.size(1) / num_kv_heads}).sum(2);
}

/// [B,S,h] -> [B,n,S,d].
at::Tensor heads_of(const at::Tensor& x_bsh, const AttentionShape& shape) {
  return x_bsh.unflatten(2, {shape.num_heads, shape.head_dim}).transpose(1, 2);
}

QkvViews whole_heads(const at::Tensor& qkv_bsd, const AttentionShape& shape) {
  const QkvViews x = split_heads(qkv_bsd, shape);
  return {x.q, repeat_heads(x.k, shape.num_heads), repeat_heads(x.v, shape.num_heads)};
}

/// [B,n,S,d] -> [B,S,h], a view where the kernel has written tokens one after the other.
at::Tensor context_of(const at::Tensor& heads) {
  return heads.transpose(1, 2).flatten(2);
}

/// Gradients of heads into the packed gradient: by one kernel where they lie token by token in
/// units of 16 bytes, as libraries write them.
void pack_heads(const QkvViews& heads, const at::Tensor& qkv_grad, const AttentionShape& shape) {
  const at::Tensor parts[3] = {
      heads.q.transpose(1, 2), heads.k.transpose(1, 2), heads.v.transpose(1, 2)};
  PackRows args{.out = qkv_grad.mutable_data_ptr(), .rows = qkv_grad.size(0) * qkv_grad.size(1)};
  bool direct = reinterpret_cast<std::uintptr_t>(args.out) % 16 == 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t bytes = parts[i].size(2) * parts[i].size(3) * parts[i].element_size();
    args.parts[i] = parts[i].const_data_ptr();
    args.widths[i] = bytes / 16;
    direct = direct && parts[i].is_contiguous() && bytes % 16 == 0 &&
             reinterpret_cast<std::uintptr_t>(args.parts[i]) % 16 == 0;
  }
  if (direct) {
    check_launch(launch_pack_rows(args, stream_of(qkv_grad)), "pack_heads");
    return;
  }
  const QkvViews out = split_heads(qkv_grad, shape);
  out.q.copy_(heads.q);
  out.k.copy_(heads.k);
  out.v.copy_(heads.v);
}

AttentionResult library_forward(Backend backend,
                                const at::Tensor& qkv_bsd,
                                const AttentionShape& shape) {
  const QkvViews x = whole_heads(qkv_bsd, shape);
  if (backend == Backend::cudnn) {
    const auto result = at::_scaled_dot_product_cudnn_attention(
        x.q, x.k, x.v, std::nullopt, /*compute_log_sumexp=*/true, 0.0, shape.causal);
    return {context_of(std::get<0>(result)), std::get<1>(result)};
  }
  const auto result = at::_scaled_dot_product_flash_attention(x.q, x.k, x.v, 0.0, shape.causal);
  return {context_of(std::get<0>(result)), std::get<1>(result)};
}

at::Tensor library_backward(Backend backend,
                            const at::Tensor& grad_bsh,
                            const at::Tensor& qkv_bsd,
                            const AttentionResult& forward,
                            const AttentionShape& shape) {
  if (backend == Backend::cudnn) {
    const at::Tensor packed = packed_attention_backward(grad_bsh, qkv_bsd, forward, shape);
    if (packed.defined()) {
      remember_attention_sums(packed.flatten(0, 1), grad_bsh.flatten(0, 1));
      return packed;
    }
  }
  const QkvViews x = whole_heads(qkv_bsd, shape);
  const at::Tensor grad = heads_of(grad_bsh, shape);
  const at::Tensor context = heads_of(forward.context_bsh, shape);
  const std::int64_t sequence = qkv_bsd.size(1);
  // Without dropout nobody reads the state of the random numbers.
  const at::Tensor unused = at::empty({2}, qkv_bsd.options().dtype(at::kLong));
  // cuDNN's kernel adds gradients of q in a changing order; FlashAttention's can be told not to,
  // and takes the sums of cuDNN's forward.
  const bool flash = backend == Backend::flash || at::globalContext().deterministicAlgorithms();
  const at::Tensor log_sum = forward.log_sum.view({grad.size(0), grad.size(1), sequence});
  const auto [q_grad, k_grad, v_grad] =
      !flash ? at::_scaled_dot_product_cudnn_attention_backward(grad,
                                                                x.q,
                                                                x.k,
                                                                x.v,
                                                                context,
                                                                forward.log_sum,
                                                                unused,
                                                                unused,
                                                                {},
                                                                {},
                                                                {},
                                                                sequence,
                                                                sequence,
                                                                0.0,
                                                                shape.causal)
             : at::_scaled_dot_product_flash_attention_backward(grad,
                                                                x.q,
                                                                x.k,
                                                                x.v,
                                                                context,
                                                                log_sum,
                                                                {},
                                                                {},
                                                                sequence,
                                                                sequence,
                                                                0.0,
                                                                shape.causal,
                                                                unused,
                                                                unused);
  at::Tensor qkv_grad = at::empty_like(qkv_bsd);
  pack_heads({q_grad, sum_heads(k_grad, shape.num_kv_heads), sum_heads(v_grad, shape.num_kv_heads)},
             qkv_grad,
             shape);
  return qkv_grad;
}

}  // namespace

AttentionResult attention_forward(const at::Tensor& qkv_bsd,
                                  const AttentionShape& shape,
                                  const at::Tensor& starts_bs) {
  const Backend backend = backend_of(qkv_bsd, shape, starts_bs);
  if (backend != Backend::plain) {
    return library_forward(backend, qkv_bsd, shape);
  }
  AttentionResult result = plain_attention_forward(widened(qkv_bsd), shape, starts_bs);
  result.context_bsh = result.context_bsh.to(qkv_bsd.scalar_type());
  return result;
}

at::Tensor attention_backward(const at::Tensor& grad_bsh,
                              const at::Tensor& qkv_bsd,
                              const AttentionResult& forward,
                              const AttentionShape& shape,
                              const at::Tensor& starts_bs) {
  const Backend backend = backend_of(qkv_bsd, shape, starts_bs);
  if (backend != Backend::plain) {
    return library_backward(backend, grad_bsh, qkv_bsd, forward, shape);
  }
  return plain_attention_backward(widened(grad_bsh),
                                  widened(qkv_bsd),
                                  {widened(forward.context_bsh), forward.log_sum},
                                  shape,
                                  starts_bs)
      .to(qkv_bsd.scalar_type());
}

}  // namespace colossal::kernels::cuda
