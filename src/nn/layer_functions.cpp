// The autograd nodes of layers that may have their results computed again in backward. A node that
// does so is known by its users: they keep the node in place of the tensor.
#include "nn/detail/linear_nodes.hpp"
#include "nn/detail/product.hpp"
#include "nn/detail/rebuild.hpp"
#include "nn/detail/shapes.hpp"
#include "nn/functions.hpp"
#include "nn/gradient.hpp"
#include "nn/kernels/activation.hpp"
#include "nn/kernels/cuda/layer_norm.hpp"
#include "nn/kernels/element.hpp"
#include "nn/kernels/few_rows.hpp"
#include "nn/kernels/layer_norm.hpp"

#include <ATen/core/ivalue.h>
#include <ATen/ops/add.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace colossal {

namespace {

using detail::give;
using detail::keep;
using detail::kept;
using detail::LinearActFunction;
using detail::LinearFunction;
using detail::optional_of;
using detail::rows_of;
using detail::set_rebuild;
using detail::take;
using detail::with_last;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::Node;
using torch::autograd::variable_list;

struct LayerNormForkFunction : Function<LayerNormForkFunction> {
  static variable_list forward(AutogradContext* ctx,
                               const at::Tensor& x,
                               const at::Tensor& weight,
                               const at::Tensor& bias,
                               double eps,
                               Rebuild rebuild) {
    set_rebuild(ctx, rebuild);
    ctx->saved_data["eps"] = eps;
    const at::Tensor x_mh = rows_of(x).contiguous();
    const kernels::LayerNormResult result = kernels::layer_norm_forward(x_mh, weight, bias, eps);
    ctx->save_for_backward({x_mh, weight, result.mean_m, result.rstd_m, bias});
    ctx->set_materialize_grads(false);
    return {result.y_mh.view(x.sizes()), x};
  }

  static at::Tensor rebuild(AutogradContext* ctx) {
    const variable_list saved = ctx->get_saved_variables();
    return kernels::layer_norm_forward(
               saved[0], saved[1], saved[4], ctx->saved_data["eps"].toDouble())
        .y_mh;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    if (!grads[0].defined()) {
      return {grads[1], {}, {}, {}, {}};
    }
    const at::Tensor g_mh = rows_of(grads[0]).contiguous();
    const at::Tensor residual = grads[1].defined() ? rows_of(grads[1]).contiguous() : at::Tensor();
    const kernels::LayerNormSaved of{saved[0], saved[1], saved[2], saved[3]};
    if (takes_gradient(saved[1]) && takes_gradient(saved[4])) {
      const at::Tensor x_mh = kernels::cuda::give_layer_norm_backward(
          g_mh, of, residual, saved[1].grad(), saved[4].grad());
      return {x_mh.view(grads[0].sizes()), {}, {}, {}, {}};
    }
    const kernels::LayerNormGrad result = kernels::layer_norm_backward(g_mh, of, residual);
    return {result.x_mh.view(grads[0].sizes()),
            give(saved[1], result.weight_h),
            give(saved[4], result.bias_h),
            {},
            {}};
  }
};

struct SwigluFunction : Function<SwigluFunction> {
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& gate,
                            const at::Tensor& up,
                            Rebuild rebuild) {
    set_rebuild(ctx, rebuild);
    ctx->save_for_backward({keep(ctx, "gate", gate), keep(ctx, "up", up)});
    return kernels::swiglu_forward(gate, up);
  }

  static at::Tensor rebuild(AutogradContext* ctx) {
    const variable_list saved = ctx->get_saved_variables();
    return kernels::swiglu_forward(kept(ctx, "gate", saved[0]), kept(ctx, "up", saved[1]));
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor gate = take(ctx, "gate", saved[0]).view(grads[0].sizes());
    const at::Tensor up = take(ctx, "up", saved[1]).view(grads[0].sizes());
    kernels::SwigluGrad result = kernels::swiglu_backward(grads[0].contiguous(), gate, up);
    return {std::move(result.gate), std::move(result.up), {}};
  }
};

struct AttentionFunction : Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& qkv,
                            const std::optional<at::Tensor>& starts,
                            const kernels::AttentionShape& shape,
                            Rebuild rebuild) {
    set_rebuild(ctx, rebuild);
    const at::Tensor starts_bs = starts ? starts->contiguous() : at::Tensor();
    kernels::AttentionResult result =
        kernels::attention_forward(qkv.contiguous(), shape, starts_bs);
    const bool drop = rebuild != Rebuild::nothing;
    ctx->save_for_backward({qkv,
                            drop ? at::Tensor() : result.context_bsh,
                            drop ? at::Tensor() : result.log_sum,
                            starts_bs});
    ctx->saved_data["num_heads"] = shape.num_heads;
    ctx->saved_data["num_kv_heads"] = shape.num_kv_heads;
    ctx->saved_data["head_dim"] = shape.head_dim;
    ctx->saved_data["causal"] = shape.causal;
    return result.context_bsh;
  }

  static at::Tensor rebuild(AutogradContext* ctx) { return result_of(ctx).context_bsh; }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const kernels::AttentionResult result = result_of(ctx);
    ctx->saved_data.erase("context");
    ctx->saved_data.erase("log_sum");
    return {kernels::attention_backward(
                grads[0].contiguous(), saved[0].contiguous(), result, shape_of(ctx), saved[3]),
            {},
            {},
            {}};
  }

 private:
  static kernels::AttentionShape shape_of(AutogradContext* ctx) {
    return {ctx->saved_data["num_heads"].toInt(),
            ctx->saved_data["num_kv_heads"].toInt(),
            ctx->saved_data["head_dim"].toInt(),
            ctx->saved_data["causal"].toBool()};
  }

  /// What forward returned; computed again it stays, since the next layer and then backward need
  /// it.
  static kernels::AttentionResult result_of(AutogradContext* ctx) {
    const variable_list saved = ctx->get_saved_variables();
    if (saved[1].defined()) {
      return {saved[1], saved[2]};
    }
    c10::IValue& context = ctx->saved_data["context"];
    if (context.isNone()) {
      const kernels::AttentionResult again =
          kernels::attention_forward(saved[0].contiguous(), shape_of(ctx), saved[3]);
      context = again.context_bsh;
      ctx->saved_data["log_sum"] = again.log_sum;
    }
    return {ctx->saved_data["context"].toTensor(), ctx->saved_data["log_sum"].toTensor()};
  }
};

template <class... Functions>
struct Nodes {
  /// The context of a node of one of these functions; nullptr for any other node.
  static AutogradContext* context(Node& node) {
    AutogradContext* found = nullptr;
    const auto look = [&]<class F>(torch::autograd::CppNode<F>* own) {
      found = own == nullptr ? found : &own->ctx_;
    };
    (look(dynamic_cast<torch::autograd::CppNode<Functions>*>(&node)), ...);
    return found;
  }

  static at::Tensor rebuild(Node& node) {
    at::Tensor output;
    const auto look = [&]<class F>(torch::autograd::CppNode<F>* own) {
      output = own == nullptr ? output : F::rebuild(&own->ctx_);
    };
    (look(dynamic_cast<torch::autograd::CppNode<Functions>*>(&node)), ...);
    return output;
  }
};

using Rebuilding = Nodes<LinearFunction,
                         LinearActFunction,
                         LayerNormForkFunction,
                         SwigluFunction,
                         AttentionFunction>;

}  // namespace

bool detail::rebuilds(Node& node) {
  AutogradContext* const ctx = Rebuilding::context(node);
  return ctx != nullptr && ctx->saved_data.at("rebuild").toBool();
}

at::Tensor detail::rebuild(Node& node) {
  return Rebuilding::rebuild(node);
}

namespace {

/// Token by token nobody wants a gradient, and rows must not depend on their neighbours.
bool is_few_rows(const at::Tensor& x) {
  return !at::GradMode::is_enabled() && x.numel() <= kernels::kFewRows * x.size(-1);
}

at::Tensor few_rows_linear(const at::Tensor& x,
                           const at::Tensor& weight,
                           const at::Tensor& bias,
                           std::optional<ActivationKind> activation) {
  const at::Tensor x_mi = kernels::widened(rows_of(x)).contiguous();
  const at::Tensor wide_bias = bias.defined() ? kernels::widened(bias) : bias;
  const at::Tensor y_mo = kernels::linear_few_rows(
      x_mi, kernels::widened(weight), activation ? at::Tensor() : wide_bias);
  return (activation ? kernels::bias_act_forward(y_mo, wide_bias, *activation) : y_mo)
      .to(x.scalar_type())
      .view(with_last(x, weight.size(0)));
}

}  // namespace

at::Tensor linear(const at::Tensor& x_bsi,
                  const at::Tensor& weight_oi,
                  const at::Tensor& bias_o,
                  std::optional<ActivationKind> activation,
                  Rebuild rebuild) {
  if (is_few_rows(x_bsi)) {
    return few_rows_linear(x_bsi, weight_oi, bias_o, activation);
  }
  if (activation.has_value()) {
    return LinearActFunction::apply(x_bsi, weight_oi, bias_o, *activation, rebuild);
  }
  return LinearFunction::apply(x_bsi, weight_oi, optional_of(bias_o), std::nullopt, rebuild);
}

at::Tensor linear_onto(const at::Tensor& residual_bso,
                       const at::Tensor& x_bsi,
                       const at::Tensor& weight_oi,
                       const at::Tensor& bias_o,
                       Rebuild rebuild) {
  if (!kernels::cuda::fuses_residual(rows_of(residual_bso), rows_of(x_bsi), weight_oi)) {
    return at::add(residual_bso, linear(x_bsi, weight_oi, bias_o, std::nullopt, rebuild));
  }
  // What is added goes on as the stream of residuals, which nobody computes again.
  return LinearFunction::apply(
      x_bsi, weight_oi, optional_of(bias_o), residual_bso, Rebuild::nothing);
}

std::int64_t linear_forward_bytes(const LinearSize& size, at::ScalarType dtype, at::Device device) {
  return device.is_cpu() ? detail::product_scratch_bytes({.m = size.rows,
                                                          .k = size.in,
                                                          .n = size.out,
                                                          .second_transposed = true,
                                                          .with_bias = size.bias},
                                                         dtype)
                         : 0;
}

std::int64_t linear_backward_bytes(const LinearSize& size,
                                   at::ScalarType dtype,
                                   at::Device device) {
  const auto scratch = [&](const detail::ProductSize& product) {
    return device.is_cpu() ? detail::product_scratch_bytes(product, dtype) : 0;
  };
  const auto item = static_cast<std::int64_t>(at::elementSize(dtype));
  const std::int64_t for_x = scratch({.m = size.rows, .k = size.out, .n = size.in});
  const std::int64_t for_weight =
      scratch({.m = size.out, .k = size.rows, .n = size.in, .transposed = true});
  return item * size.rows * size.in + std::max(for_x, item * size.in * size.out + for_weight);
}

std::int64_t gpu_workspace_bytes(at::ScalarType dtype, bool torch_too) {
  constexpr std::int64_t kOfTorch = std::int64_t{32} << 20U;
  constexpr std::int64_t kOfTorchWithBias = std::int64_t{1} << 20U;
  if (at::elementSize(dtype) > 2) {
    return 2 * kOfTorch + kOfTorchWithBias;
  }
  return kernels::cuda::kWorkspaceBytes + (torch_too ? 2 * kOfTorch : 0);
}

std::pair<at::Tensor, at::Tensor> layer_norm_fork(const at::Tensor& x_bsh,
                                                  const at::Tensor& weight_h,
                                                  const at::Tensor& bias_h,
                                                  double eps,
                                                  Rebuild rebuild) {
  variable_list results = LayerNormForkFunction::apply(x_bsh, weight_h, bias_h, eps, rebuild);
  return {std::move(results[0]), std::move(results[1])};
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up, Rebuild rebuild) {
  return SwigluFunction::apply(gate, up, rebuild);
}

at::Tensor attention(const at::Tensor& qkv_bsd,
                     const kernels::AttentionShape& shape,
                     const at::Tensor& starts_bs,
                     Rebuild rebuild) {
  return AttentionFunction::apply(qkv_bsd, optional_of(starts_bs), shape, rebuild);
}

}  // namespace colossal
