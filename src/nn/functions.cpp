// The autograd nodes behind nn/functions.hpp.
#include "nn/functions.hpp"

#include "core/types.hpp"
#include "nn/kernels/activation.hpp"
#include "nn/kernels/few_rows.hpp"
#include "nn/kernels/layer_norm.hpp"
#include "nn/kernels/token_loss.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/custom_function.h>

namespace colossal {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

at::Tensor rows_of(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

Shape with_last(const at::Tensor& x, std::int64_t last) {
  Shape shape = x.sizes().vec();
  shape.back() = last;
  return shape;
}

struct LinearFunction : Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& x,
                            const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["bias"] = bias.has_value();
    const at::Tensor x_mi = rows_of(x);
    const at::Tensor y_mo = bias ? at::addmm(*bias, x_mi, weight.t()) : at::mm(x_mi, weight.t());
    return y_mo.view(with_last(x, weight.size(0)));
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor g_mo = rows_of(grads[0]);
    at::Tensor x_grad;
    at::Tensor bias_grad;
    if (ctx->needs_input_grad(0)) {
      x_grad = at::mm(g_mo, weight).view(x.sizes());
    }
    if (ctx->saved_data["bias"].toBool()) {
      bias_grad = g_mo.sum(0);
    }
    return {x_grad, at::mm(g_mo.t(), rows_of(x)), bias_grad};
  }
};

struct LinearActFunction : Function<LinearActFunction> {
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& x,
                            const at::Tensor& weight,
                            const at::Tensor& bias,
                            std::int64_t kind) {
    const at::Tensor pre_mf = at::mm(rows_of(x), weight.t());
    ctx->save_for_backward({x, weight, bias, pre_mf});
    ctx->saved_data["kind"] = kind;
    return kernels::bias_act_forward(pre_mf, bias, static_cast<ActivationKind>(kind))
        .view(with_last(x, weight.size(0)));
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const auto kind = static_cast<ActivationKind>(ctx->saved_data["kind"].toInt());
    const kernels::BiasActGrad pre =
        kernels::bias_act_backward(rows_of(grads[0]).contiguous(), saved[3], saved[2], kind);
    at::Tensor x_grad;
    if (ctx->needs_input_grad(0)) {
      x_grad = at::mm(pre.pre_mf, saved[1]).view(x.sizes());
    }
    return {x_grad, at::mm(pre.pre_mf.t(), rows_of(x)), pre.bias_f, {}};
  }
};

struct LayerNormForkFunction : Function<LayerNormForkFunction> {
  static variable_list forward(AutogradContext* ctx,
                               const at::Tensor& x,
                               const at::Tensor& weight,
                               const at::Tensor& bias,
                               double eps) {
    const at::Tensor x_mh = rows_of(x).contiguous();
    const kernels::LayerNormResult result = kernels::layer_norm_forward(x_mh, weight, bias, eps);
    ctx->save_for_backward({x_mh, weight, result.mean_m, result.rstd_m});
    ctx->set_materialize_grads(false);
    return {result.y_mh.view(x.sizes()), x};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    if (!grads[0].defined()) {
      return {grads[1], {}, {}, {}};
    }
    const at::Tensor g_mh = rows_of(grads[0]).contiguous();
    const at::Tensor residual = grads[1].defined() ? rows_of(grads[1]).contiguous() : at::Tensor();
    const kernels::LayerNormGrad result =
        kernels::layer_norm_backward(g_mh, {saved[0], saved[1], saved[2], saved[3]}, residual);
    return {result.x_mh.view(grads[0].sizes()), result.weight_h, result.bias_h, {}};
  }
};

struct DropoutFunction : Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& x,
                            const std::optional<at::Tensor>& residual,
                            const kernels::DropoutKey& key) {
    ctx->saved_data["stream"] = static_cast<std::int64_t>(key.stream);
    ctx->saved_data["step"] = static_cast<std::int64_t>(key.step);
    ctx->saved_data["first"] = static_cast<std::int64_t>(key.first);
    ctx->saved_data["p"] = key.p;
    ctx->saved_data["residual"] = residual.has_value();
    return kernels::dropout(x.contiguous(), residual ? residual->contiguous() : at::Tensor(), key);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const kernels::DropoutKey key{static_cast<std::uint64_t>(ctx->saved_data["stream"].toInt()),
                                  static_cast<std::uint32_t>(ctx->saved_data["step"].toInt()),
                                  static_cast<std::uint64_t>(ctx->saved_data["first"].toInt()),
                                  ctx->saved_data["p"].toDouble()};
    const bool residual = ctx->saved_data["residual"].toBool();
    return {
        kernels::dropout(grads[0].contiguous(), {}, key), residual ? grads[0] : at::Tensor(), {}};
  }
};

struct SwigluFunction : Function<SwigluFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate, const at::Tensor& up) {
    ctx->save_for_backward({gate, up});
    return kernels::swiglu_forward(gate, up);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    kernels::SwigluGrad result =
        kernels::swiglu_backward(grads[0].contiguous(), saved[0], saved[1]);
    return {std::move(result.gate), std::move(result.up)};
  }
};

/// Nodes take an absent tensor as an empty optional.
std::optional<at::Tensor> optional_of(const at::Tensor& x) {
  return x.defined() ? std::optional(x) : std::nullopt;
}

struct AttentionFunction : Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& qkv,
                            const std::optional<at::Tensor>& starts,
                            const kernels::AttentionShape& shape) {
    const at::Tensor starts_bs = starts ? starts->contiguous() : at::Tensor();
    kernels::AttentionResult result =
        kernels::attention_forward(qkv.contiguous(), shape, starts_bs);
    ctx->save_for_backward({qkv, result.context_bsh, result.log_sum, starts_bs});
    ctx->saved_data["num_heads"] = shape.num_heads;
    ctx->saved_data["num_kv_heads"] = shape.num_kv_heads;
    ctx->saved_data["head_dim"] = shape.head_dim;
    ctx->saved_data["causal"] = shape.causal;
    return result.context_bsh;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const kernels::AttentionShape shape{ctx->saved_data["num_heads"].toInt(),
                                        ctx->saved_data["num_kv_heads"].toInt(),
                                        ctx->saved_data["head_dim"].toInt(),
                                        ctx->saved_data["causal"].toBool()};
    return {
        kernels::attention_backward(
            grads[0].contiguous(), saved[0].contiguous(), {saved[1], saved[2]}, shape, saved[3]),
        {},
        {}};
  }
};

struct TokenLossFunction : Function<TokenLossFunction> {
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& logits,
                            const at::Tensor& labels,
                            std::int64_t vocabulary,
                            bool want_grad) {
    at::Tensor logits_mv = rows_of(logits).contiguous();
    const double loss =
        kernels::token_loss(logits_mv, labels.reshape(-1).contiguous(), vocabulary, want_grad);
    if (want_grad) {
      ctx->saved_data["grad"] = logits_mv.view(logits.sizes());
    }
    return at::scalar_tensor(loss, logits.options());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    at::Tensor logits_grad = ctx->saved_data["grad"].toTensor();
    ctx->saved_data.clear();  // scaled in place: this node runs once
    return {logits_grad.mul_(grads[0]), {}, {}, {}};
  }
};

/// Token by token nobody wants a gradient, and rows must not depend on their neighbours.
bool is_few_rows(const at::Tensor& x) {
  return !at::GradMode::is_enabled() && x.numel() <= kernels::kFewRows * x.size(-1);
}

at::Tensor few_rows_linear(const at::Tensor& x,
                           const at::Tensor& weight,
                           const at::Tensor& bias,
                           std::optional<ActivationKind> activation) {
  const at::Tensor x_mi = rows_of(x).contiguous();
  const at::Tensor y_mo = kernels::linear_few_rows(x_mi, weight, activation ? at::Tensor() : bias);
  return (activation ? kernels::bias_act_forward(y_mo, bias, *activation) : y_mo)
      .view(with_last(x, weight.size(0)));
}

}  // namespace

at::Tensor linear(const at::Tensor& x_bsi,
                  const at::Tensor& weight_oi,
                  const at::Tensor& bias_o,
                  std::optional<ActivationKind> activation) {
  if (is_few_rows(x_bsi)) {
    return few_rows_linear(x_bsi, weight_oi, bias_o, activation);
  }
  if (activation.has_value()) {
    return LinearActFunction::apply(
        x_bsi, weight_oi, bias_o, static_cast<std::int64_t>(*activation));
  }
  return LinearFunction::apply(x_bsi, weight_oi, optional_of(bias_o));
}

std::pair<at::Tensor, at::Tensor> layer_norm_fork(const at::Tensor& x_bsh,
                                                  const at::Tensor& weight_h,
                                                  const at::Tensor& bias_h,
                                                  double eps) {
  variable_list results = LayerNormForkFunction::apply(x_bsh, weight_h, bias_h, eps);
  return {std::move(results[0]), std::move(results[1])};
}

at::Tensor keyed_dropout(const at::Tensor& x,
                         const at::Tensor& residual,
                         const kernels::DropoutKey& key) {
  return DropoutFunction::apply(x, optional_of(residual), key);
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return SwigluFunction::apply(gate, up);
}

at::Tensor attention(const at::Tensor& qkv_bsd,
                     const kernels::AttentionShape& shape,
                     const at::Tensor& starts_bs) {
  return AttentionFunction::apply(qkv_bsd, optional_of(starts_bs), shape);
}

at::Tensor token_loss(const at::Tensor& logits_bsv,
                      const at::Tensor& labels_bs,
                      std::int64_t vocabulary) {
  const bool want_grad = at::GradMode::is_enabled() && logits_bsv.requires_grad();
  return TokenLossFunction::apply(logits_bsv, labels_bs, vocabulary, want_grad);
}

}  // namespace colossal
