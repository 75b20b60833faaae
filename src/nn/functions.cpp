// The autograd nodes behind embedding, dropout and loss; layer_functions.cpp has the others.
#include "nn/functions.hpp"

#include "nn/detail/shapes.hpp"
#include "nn/kernels/element.hpp"
#include "nn/kernels/embedding.hpp"
#include "nn/kernels/token_loss.hpp"

#include <ATen/ops/embedding.h>
#include <torch/csrc/autograd/custom_function.h>

namespace colossal {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

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

struct EmbeddingFunction : Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& weight,
                            const at::Tensor& indices) {
    ctx->save_for_backward({indices});
    ctx->saved_data["rows"] = weight.size(0);
    return kernels::embedding_forward(weight, indices);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor indices_m = ctx->get_saved_variables()[0].reshape(-1).contiguous();
    return {kernels::embedding_backward(
                detail::rows_of(grads[0]).contiguous(), indices_m, ctx->saved_data["rows"].toInt()),
            {}};
  }
};

struct TokenLossFunction : Function<TokenLossFunction> {
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& logits,
                            const at::Tensor& labels,
                            std::int64_t vocabulary,
                            std::optional<double> grad_factor) {
    at::Tensor logits_mv = detail::rows_of(logits).contiguous();
    at::Tensor loss = kernels::token_loss_tensor(
        logits_mv, labels.reshape(-1).contiguous(), vocabulary, grad_factor);
    if (grad_factor) {
      ctx->saved_data["grad"] = logits_mv.view(logits.sizes());
      ctx->saved_data["factor"] = *grad_factor;
    }
    return loss;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    at::Tensor logits_grad = ctx->saved_data["grad"].toTensor();
    const double factor = ctx->saved_data["factor"].toDouble();
    ctx->saved_data.clear();  // scaled in place: this node runs once
    kernels::scale_loss_grad(logits_grad, grads[0], factor);
    return {logits_grad, {}, {}, {}};
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& weight_rh, const at::Tensor& indices) {
  const bool half = wide_dtype(weight_rh.scalar_type()) != weight_rh.scalar_type();
  // ATen's own gradient of a table on a GPU adds in an order that is not fixed.
  return half || weight_rh.is_cuda() ? EmbeddingFunction::apply(weight_rh, indices)
                                     : at::embedding(weight_rh, indices);
}

at::Tensor keyed_dropout(const at::Tensor& x,
                         const at::Tensor& residual,
                         const kernels::DropoutKey& key) {
  return DropoutFunction::apply(x, detail::optional_of(residual), key);
}

at::Tensor token_loss(const at::Tensor& logits_bsv,
                      const at::Tensor& labels_bs,
                      std::int64_t vocabulary,
                      std::optional<double> loss_factor) {
  const at::ScalarType dtype = logits_bsv.scalar_type();
  std::optional<double> grad_factor;
  if (at::GradMode::is_enabled() && logits_bsv.requires_grad()) {
    grad_factor = loss_factor.value_or(kernels::loss_grad_scale(dtype));
    if (wide_dtype(dtype) == at::kFloat) {  // as the gradient of the loss will arrive
      grad_factor = static_cast<double>(static_cast<float>(*grad_factor));
    }
  }
  return TokenLossFunction::apply(logits_bsv, labels_bs, vocabulary, grad_factor);
}

}  // namespace colossal
