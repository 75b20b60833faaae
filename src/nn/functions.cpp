// The autograd nodes behind embedding, dropout and loss; layer_functions.cpp has the others.
#include "nn/functions.hpp"

#include "nn/detail/product.hpp"
#include "nn/detail/rebuild.hpp"
#include "nn/detail/shapes.hpp"
#include "nn/gradient.hpp"
#include "nn/kernels/cuda/linear.hpp"
#include "nn/kernels/element.hpp"
#include "nn/kernels/embedding.hpp"
#include "nn/kernels/token_loss.hpp"

#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

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
    ctx->saved_data["later"] = reinterpret_cast<std::int64_t>(key.later);
    ctx->saved_data["residual"] = residual.has_value();
    return kernels::dropout(x.contiguous(), residual ? residual->contiguous() : at::Tensor(), key);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const kernels::DropoutKey key{
        static_cast<std::uint64_t>(ctx->saved_data["stream"].toInt()),
        static_cast<std::uint32_t>(ctx->saved_data["step"].toInt()),
        static_cast<std::uint64_t>(ctx->saved_data["first"].toInt()),
        ctx->saved_data["p"].toDouble(),
        reinterpret_cast<const std::uint32_t*>(ctx->saved_data["later"].toInt())};
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
                            const LossRule& rule) {
    at::Tensor logits_mv = detail::rows_of(logits).contiguous();
    at::Tensor loss = kernels::token_loss_tensor(
        logits_mv, labels.reshape(-1).contiguous(), vocabulary, rule.factor, rule.smoothing);
    if (rule.factor) {
      ctx->saved_data["grad"] = logits_mv.view(logits.sizes());
      ctx->saved_data["factor"] = *rule.factor;
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

/// What the loss of a head needs beside tensors.
struct HeadLoss {
  std::int64_t vocabulary;
  double grad_factor;
  LossParts parts;
};

/// A sum that is still zero. On a GPU the first product replaces what is there.
at::Tensor sum_of_nothing(at::IntArrayRef sizes, const at::TensorOptions& options) {
  if (!options.device().is_cuda()) {
    return at::zeros(sizes, options);
  }
  at::Tensor sum = at::empty(sizes, options);
  mark_unwritten(sum);
  return sum;
}

struct HeadLossFunction : Function<HeadLossFunction> {
  static at::Tensor forward(AutogradContext* ctx,
                            const at::Tensor& x,
                            const at::Tensor& weight,
                            const at::Tensor& labels,
                            const HeadLoss& head) {
    const at::Tensor x_mh = detail::rows_of(x).contiguous();
    const at::Tensor labels_m = labels.reshape(-1).contiguous();
    const auto wide = x.options().dtype(wide_dtype(x.scalar_type()));
    at::Tensor loss = at::zeros({}, wide);
    at::Tensor x_grad = at::empty_like(x_mh);
    const at::Tensor weight_grad = sum_of_nothing(weight.sizes(), wide);
    for (std::int64_t begin = 0; begin < x_mh.size(0); begin += head.parts.chunk_rows) {
      const std::int64_t rows = std::min(head.parts.chunk_rows, x_mh.size(0) - begin);
      const at::Tensor part = x_mh.narrow(0, begin, rows);
      at::Tensor logits = detail::product(part, weight.t());
      loss.add_(kernels::token_loss_tensor(logits,
                                           labels_m.narrow(0, begin, rows),
                                           head.vocabulary,
                                           head.grad_factor,
                                           head.parts.rule.smoothing));
      x_grad.narrow(0, begin, rows).copy_(detail::product(logits, weight));
      if (!logits.is_cuda() || !kernels::cuda::add_weight_gradient(weight_grad, logits, part)) {
        detail::accumulate(weight_grad, detail::product(logits.t(), part));
      }
    }
    ctx->saved_data["x_grad"] = x_grad.view(x.sizes());
    ctx->saved_data["weight_grad"] = weight_grad;
    ctx->saved_data["factor"] = head.grad_factor;
    ctx->save_for_backward({weight});
    return loss;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    at::Tensor x_grad = ctx->saved_data["x_grad"].toTensor();
    at::Tensor weight_grad = ctx->saved_data["weight_grad"].toTensor();
    const double factor = ctx->saved_data["factor"].toDouble();
    ctx->saved_data.clear();  // scaled in place: this node runs once
    kernels::scale_loss_grad(x_grad, grads[0], factor);
    kernels::scale_loss_grad(weight_grad, grads[0], factor);
    return {x_grad, detail::give(ctx->get_saved_variables()[0], weight_grad), {}, {}};
  }
};

/// The factor as the gradient of the loss will arrive: in the dtype of the loss.
double as_loss(double factor, at::ScalarType dtype) {
  return wide_dtype(dtype) == at::kFloat ? static_cast<double>(static_cast<float>(factor)) : factor;
}

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
                      const LossRule& rule) {
  const at::ScalarType dtype = logits_bsv.scalar_type();
  LossRule used = rule;
  used.factor = std::nullopt;
  if (at::GradMode::is_enabled() && logits_bsv.requires_grad()) {
    used.factor = as_loss(rule.factor.value_or(kernels::loss_grad_scale(dtype)), dtype);
  }
  return TokenLossFunction::apply(logits_bsv, labels_bs, vocabulary, used);
}

at::Tensor head_loss(const at::Tensor& x_bsh,
                     const at::Tensor& weight_vh,
                     const at::Tensor& labels_bs,
                     std::int64_t vocabulary,
                     const LossParts& parts) {
  check(parts.rule.factor.has_value(),
        ErrorKind::internal,
        "layer-use",
        "a head in parts needs the factor of its loss");
  const double grad_factor = as_loss(*parts.rule.factor, x_bsh.scalar_type());
  return HeadLossFunction::apply(
      x_bsh, weight_vh, labels_bs, HeadLoss{vocabulary, grad_factor, parts});
}

}  // namespace colossal
