// The nodes of linear layers. One that reads the result of an activation computes, where a kernel
// does both, the gradient before that activation in its own product, and the activation's node
// takes it over.
#pragma once

#include "core/error.hpp"
#include "nn/detail/product.hpp"
#include "nn/detail/rebuild.hpp"
#include "nn/detail/shapes.hpp"
#include "nn/kernels/activation.hpp"
#include "nn/kernels/cuda/columns.hpp"
#include "nn/kernels/cuda/linear.hpp"

#include <optional>

namespace colossal::detail {

using torch::autograd::Function;
using torch::autograd::variable_list;

/// g^T x, or undefined where the product has been added to the gradient that the weight has
/// already, or written as its first part.
inline at::Tensor weight_gradient(const at::Tensor& weight,
                                  const at::Tensor& g_mo,
                                  const at::Tensor& x_mi) {
  const bool added = g_mo.is_cuda() && weight.is_leaf() && weight.grad().defined() &&
                     kernels::cuda::add_weight_gradient(weight.grad(), g_mo, x_mi);
  return added ? at::Tensor() : product(g_mo.t(), x_mi);
}

struct LinearActFunction : Function<LinearActFunction> {
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& x,
                            const at::Tensor& weight,
                            const at::Tensor& bias,
                            ActivationKind kind,
                            Rebuild rebuild) {
    set_rebuild(ctx, rebuild);
    const at::Tensor x_mi = rows_of(x);
    const bool fused = kernels::cuda::fuses_gelu(x_mi, weight, kind);
    // The product that goes back through gelu then makes its result again, too.
    const bool lends_result =
        fused && rebuild == Rebuild::output && kernels::cuda::rebuilds_gelu(x_mi, weight);
    ctx->saved_data["kind"] = static_cast<std::int64_t>(kind);
    ctx->saved_data["fused"] = fused;
    ctx->saved_data["lends_result"] = lends_result;
    kernels::cuda::LinearGelu result;
    if (!fused) {
      result = apart(x_mi, weight, bias, kind);
    } else if (rebuild == Rebuild::nothing || lends_result) {
      result = kernels::cuda::linear_gelu(x_mi, weight, bias);
    } else {  // by the kernels of rebuild(), whose bits must be these
      result.pre_mf = product(bias, x_mi, weight.t());
      result.y_mf = kernels::bias_act_forward(result.pre_mf, {}, kind);
    }
    const bool drop = rebuild == Rebuild::product;
    ctx->save_for_backward({keep(ctx, "x", x), weight, bias, drop ? at::Tensor() : result.pre_mf});
    return result.y_mf.view(with_last(x, weight.size(0)));
  }

  static at::Tensor rebuild(AutogradContext* ctx) {
    if (const auto lent = ctx->saved_data.find("result"); lent != ctx->saved_data.end()) {
      return lent->second.toTensor();
    }
    const variable_list saved = ctx->get_saved_variables();
    return kernels::bias_act_forward(
        before_activation(ctx, saved), bias_of(ctx, saved), kind_of(ctx));
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& weight = saved[1];
    const kernels::BiasActGrad pre = pre_gradient(ctx, saved, rows_of(grads[0]));
    ctx->saved_data.erase("pre");
    ctx->saved_data.erase("result");
    at::Tensor x_grad;
    if (ctx->needs_input_grad(0)) {
      x_grad = product(pre.pre_mf, weight).view(with_last(grads[0], weight.size(1)));
    }
    const at::Tensor bias_grad =
        pre.bias_f.defined() ? give(saved[2], pre.bias_f) : give_column_sums(saved[2], pre.pre_mf);
    const at::Tensor x_mi = rows_of(take(ctx, "x", saved[0]));
    return {x_grad, weight_gradient(weight, pre.pre_mf, x_mi), bias_grad, {}, {}};
  }

  /// Whether the only user of the result may compute pre_gradient() in the product that leads
  /// there.
  static bool lends_pre_gradient(AutogradContext* ctx) {
    return ctx->saved_data.at("fused").toBool();
  }

  /// What that user does in its backward; the result is its gradient of x and goes to this node.
  /// The activation's result, if it is made again here, takes the place of what it is made of.
  static at::Tensor lend_pre_gradient(AutogradContext* ctx,
                                      const at::Tensor& g_mo,
                                      const at::Tensor& weight_of) {
    const bool lends_result = ctx->saved_data.at("lends_result").toBool();
    at::Tensor result;
    const kernels::BiasActGrad grad =
        kernels::cuda::linear_gelu_backward(g_mo,
                                            weight_of,
                                            before_activation(ctx, ctx->get_saved_variables()),
                                            lends_result ? &result : nullptr);
    if (lends_result) {
      ctx->saved_data["result"] = result;
    }
    ctx->saved_data["lent"] = grad.pre_mf;
    ctx->saved_data["lent_bias"] = grad.bias_f;
    return grad.pre_mf;
  }

 private:
  static kernels::cuda::LinearGelu apart(const at::Tensor& x_mi,
                                         const at::Tensor& weight,
                                         const at::Tensor& bias,
                                         ActivationKind kind) {
    const at::Tensor pre_mf = product(x_mi, weight.t());
    return {kernels::bias_act_forward(pre_mf, bias, kind), pre_mf};
  }

  static ActivationKind kind_of(AutogradContext* ctx) {
    return static_cast<ActivationKind>(ctx->saved_data["kind"].toInt());
  }

  /// What is still to be added to before_activation().
  static at::Tensor bias_of(AutogradContext* ctx, const variable_list& saved) {
    return ctx->saved_data["fused"].toBool() ? at::Tensor() : saved[2];
  }

  static kernels::BiasActGrad pre_gradient(AutogradContext* ctx,
                                           const variable_list& saved,
                                           const at::Tensor& g_mf) {
    const auto lent = ctx->saved_data.find("lent");
    if (lent == ctx->saved_data.end()) {
      return kernels::bias_act_backward(
          g_mf.contiguous(), before_activation(ctx, saved), bias_of(ctx, saved), kind_of(ctx));
    }
    const at::Tensor pre_mf = lent->second.toTensor();
    check(pre_mf.const_data_ptr() == g_mf.const_data_ptr(),
          ErrorKind::internal,
          "activation-users",
          "the result of an activation that a linear layer reads has a second user");
    ctx->saved_data.erase(lent);
    return {pre_mf, ctx->saved_data.at("lent_bias").toTensor()};
  }

  /// x W^T, with the bias where it is fused; computed again it stays, since the activation and then
  /// its gradient need it.
  static at::Tensor before_activation(AutogradContext* ctx, const variable_list& saved) {
    if (saved[3].defined()) {
      return saved[3];
    }
    c10::IValue& pre_mf = ctx->saved_data["pre"];
    if (pre_mf.isNone()) {
      const at::Tensor x_mi = rows_of(kept(ctx, "x", saved[0]));
      pre_mf = ctx->saved_data["fused"].toBool() ? product(saved[2], x_mi, saved[1].t())
                                                 : product(x_mi, saved[1].t());
    }
    return pre_mf.toTensor();
  }
};

/// The context of the activation that made x, where it lends its gradient; else nullptr. `x` lives
/// in a graph.
inline AutogradContext* lender_of(Node* maker) {
  auto* const node = dynamic_cast<torch::autograd::CppNode<LinearActFunction>*>(maker);
  return node != nullptr && LinearActFunction::lends_pre_gradient(&node->ctx_) ? &node->ctx_
                                                                               : nullptr;
}

struct LinearFunction : Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& x,
                            const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias,
                            const std::optional<at::Tensor>& residual,
                            Rebuild rebuild) {
    set_rebuild(ctx, rebuild);
    ctx->saved_data["onto"] = residual.has_value();
    if (lender_of(x.grad_fn().get()) != nullptr) {
      ctx->saved_data["activation"] =
          c10::IValue::make_capsule(c10::make_intrusive<Maker>(x.grad_fn()));
    }
    const at::Tensor b = bias.value_or(at::Tensor());
    const at::Tensor y_mo =
        residual ? kernels::cuda::product_onto(rows_of(*residual), b, rows_of(x), weight.t())
                 : multiply(rows_of(x), weight, b);
    ctx->save_for_backward({keep(ctx, "x", x), weight, b});
    return y_mo.view(with_last(x, weight.size(0)));
  }

  static at::Tensor rebuild(AutogradContext* ctx) {
    const variable_list saved = ctx->get_saved_variables();
    return multiply(rows_of(kept(ctx, "x", saved[0])), saved[1], saved[2]);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor g_mo = rows_of(grads[0]);
    const bool lent = ctx->saved_data.find("activation") != ctx->saved_data.end();
    at::Tensor x_grad;
    if (ctx->needs_input_grad(0)) {
      x_grad = input_gradient(ctx, g_mo, saved[1]).view(with_last(grads[0], saved[1].size(1)));
    }
    const at::Tensor bias_grad =
        saved[2].defined() ? give_column_sums(saved[2], g_mo) : at::Tensor();
    const bool onto = ctx->saved_data["onto"].toBool();
    if (onto && !lent && x_grad.defined()) {  // attention reads it, which leads to another bias
      kernels::cuda::remember_product_sums(rows_of(x_grad), g_mo, saved[1]);
    }
    const at::Tensor residual_grad = onto ? grads[0] : at::Tensor();
    const at::Tensor weight_grad =
        weight_gradient(saved[1], g_mo, rows_of(take(ctx, "x", saved[0])));
    return {x_grad, weight_grad, bias_grad, residual_grad, {}};
  }

 private:
  static at::Tensor multiply(const at::Tensor& x_mi,
                             const at::Tensor& weight,
                             const at::Tensor& bias) {
    return bias.defined() ? product(bias, x_mi, weight.t()) : product(x_mi, weight.t());
  }

  static at::Tensor input_gradient(AutogradContext* ctx,
                                   const at::Tensor& g_mo,
                                   const at::Tensor& weight) {
    const auto maker = ctx->saved_data.find("activation");
    if (maker == ctx->saved_data.end()) {
      return product(g_mo, weight);
    }
    const auto activation = c10::static_intrusive_pointer_cast<Maker>(maker->second.toCapsule());
    ctx->saved_data.erase(maker);
    return LinearActFunction::lend_pre_gradient(lender_of(activation->node.get()), g_mo, weight);
  }
};

}  // namespace colossal::detail
