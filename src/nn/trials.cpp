// Which operations of a layer can be measured alone, and what does each move or compute at least?
#include "nn/trials.hpp"

#include "core/types.hpp"
#include "nn/detail/product.hpp"
#include "nn/kernels/activation.hpp"
#include "nn/kernels/attention.hpp"
#include "nn/kernels/columns.hpp"
#include "nn/kernels/dropout.hpp"
#include "nn/kernels/embedding.hpp"
#include "nn/kernels/layer_norm.hpp"
#include "nn/kernels/token_loss.hpp"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include <utility>

namespace colossal {
namespace {

/// Draws are of fp32: fewer kernels are loaded, and all dtypes hold the same values.
at::Tensor random(const TrialSizes& sizes, const Shape& shape) {
  return at::randn(shape, at::TensorOptions(at::kFloat).device(sizes.device)).to(sizes.dtype);
}

at::Tensor random_ids(const TrialSizes& sizes) {
  return at::randint(
      sizes.vocabulary, {sizes.tokens()}, at::TensorOptions(at::kLong).device(sizes.device));
}

double bytes_of(const TrialSizes& sizes, std::int64_t elements) {
  return static_cast<double>(elements) * static_cast<double>(at::elementSize(sizes.dtype));
}

std::string text_of(std::int64_t rows, std::int64_t columns) {
  return fmt::format("{} x {}", rows, columns);
}

/// One linear layer.
struct LinearLayer {
  const char* name;
  std::int64_t in;
  std::int64_t out;
};

/// The three products of one layer: y = x W^T, the gradient of x = g W, that of W = g^T x.
void append_products(std::vector<Trial>& trials,
                     const TrialSizes& sizes,
                     const LinearLayer& layer) {
  const auto [name, in, out] = layer;
  const std::int64_t tokens = sizes.tokens();
  const double flops = 2.0 * static_cast<double>(tokens) * static_cast<double>(in * out);
  const auto trial = [&](const char* which, const Shape& dims, auto multiply) {
    trials.push_back({fmt::format("{} {}", name, which),
                      fmt::format("{} x {} x {}", dims[0], dims[1], dims[2]),
                      [=] { return PreparedTrial{.call = multiply(), .flops = flops}; }});
  };
  trial("forward", {tokens, in, out}, [=] {
    return [x = random(sizes, {tokens, in}), w = random(sizes, {out, in})] {
      static_cast<void>(detail::product(x, w.t()));
    };
  });
  trial("input gradient", {tokens, out, in}, [=] {
    return [g = random(sizes, {tokens, out}), w = random(sizes, {out, in})] {
      static_cast<void>(detail::product(g, w));
    };
  });
  trial("weight gradient", {out, tokens, in}, [=] {
    return [g = random(sizes, {tokens, out}), x = random(sizes, {tokens, in})] {
      static_cast<void>(detail::product(g.t(), x));
    };
  });
}

kernels::AttentionShape attention_shape(const TrialSizes& sizes) {
  return {.num_heads = sizes.num_heads,
          .num_kv_heads = sizes.num_kv_heads,
          .head_dim = sizes.hidden / sizes.num_heads,
          .causal = true};
}

/// Products of the scores that are not masked, once: q k^T and the weighted sum of v.
double attention_flops(const TrialSizes& sizes) {
  return 2.0 * static_cast<double>(sizes.tokens()) *
         static_cast<double>(sizes.sequence * sizes.hidden);
}

void append_norm(std::vector<Trial>& trials, const TrialSizes& sizes) {
  constexpr double kEps = 1e-5;
  const std::int64_t hidden = sizes.hidden;
  const double pass = bytes_of(sizes, sizes.tokens() * hidden);
  const std::string size = text_of(sizes.tokens(), hidden);
  const Shape shape = {sizes.tokens(), hidden};
  trials.push_back({"layer norm", size, [=] {
                      const at::Tensor x = random(sizes, shape);
                      const at::Tensor w = random(sizes, {hidden});
                      return PreparedTrial{
                          .call = [=] { (void)kernels::layer_norm_forward(x, w, w, kEps); },
                          .bytes = 2 * pass};
                    }});
  trials.push_back({"layer norm backward, residual", size, [=] {
                      const at::Tensor x = random(sizes, shape);
                      const at::Tensor grad = random(sizes, shape);
                      const at::Tensor residual = random(sizes, shape);
                      const at::Tensor w = random(sizes, {hidden});
                      const kernels::LayerNormResult y = kernels::layer_norm_forward(x, w, w, kEps);
                      return PreparedTrial{.call =
                                               [=] {
                                                 (void)kernels::layer_norm_backward(
                                                     grad, {x, w, y.mean_m, y.rstd_m}, residual);
                                               },
                                           .bytes = 4 * pass};
                    }});
  trials.push_back({"dropout and residual", size, [=] {
                      const at::Tensor x = random(sizes, shape);
                      const at::Tensor residual = random(sizes, shape);
                      const kernels::DropoutKey key{.stream = 1, .step = 2, .first = 0, .p = 0.1};
                      return PreparedTrial{
                          .call = [=] { (void)kernels::dropout(x, residual, key); },
                          .bytes = 3 * pass};
                    }});
}

void append_swiglu(std::vector<Trial>& trials, const TrialSizes& sizes) {
  const Shape shape = {sizes.tokens(), sizes.ffn};
  const double pass = bytes_of(sizes, sizes.tokens() * sizes.ffn);
  const std::string size = text_of(sizes.tokens(), sizes.ffn);
  trials.push_back({"swiglu", size, [=] {
                      const at::Tensor gate = random(sizes, shape);
                      const at::Tensor up = random(sizes, shape);
                      return PreparedTrial{.call = [=] { (void)kernels::swiglu_forward(gate, up); },
                                           .bytes = 3 * pass};
                    }});
  trials.push_back({"swiglu backward", size, [=] {
                      const at::Tensor grad = random(sizes, shape);
                      const at::Tensor gate = random(sizes, shape);
                      const at::Tensor up = random(sizes, shape);
                      return PreparedTrial{
                          .call = [=] { (void)kernels::swiglu_backward(grad, gate, up); },
                          .bytes = 5 * pass};
                    }});
}

void append_activation(std::vector<Trial>& trials, const TrialSizes& sizes) {
  const Shape shape = {sizes.tokens(), sizes.ffn};
  const double pass = bytes_of(sizes, sizes.tokens() * sizes.ffn);
  const std::string size = text_of(sizes.tokens(), sizes.ffn);
  const ActivationKind kind = sizes.activation;
  trials.push_back({"bias and activation", size, [=] {
                      const at::Tensor x = random(sizes, shape);
                      const at::Tensor bias = random(sizes, {sizes.ffn});
                      return PreparedTrial{
                          .call = [=] { (void)kernels::bias_act_forward(x, bias, kind); },
                          .bytes = 2 * pass};
                    }});
  trials.push_back({"bias and activation backward", size, [=] {
                      const at::Tensor grad = random(sizes, shape);
                      const at::Tensor x = random(sizes, shape);
                      const at::Tensor bias = random(sizes, {sizes.ffn});
                      return PreparedTrial{
                          .call = [=] { (void)kernels::bias_act_backward(grad, x, bias, kind); },
                          .bytes = 3 * pass};
                    }});
}

void append_table(std::vector<Trial>& trials, const TrialSizes& sizes) {
  const std::int64_t hidden = sizes.hidden;
  const std::int64_t rows = sizes.vocabulary;
  const double pass = bytes_of(sizes, sizes.tokens() * hidden);
  const std::string size =
      fmt::format("{} of {} x {}", sizes.tokens(), sizes.vocabulary, sizes.hidden);
  trials.push_back({"embedding", size, [=] {
                      const at::Tensor table = random(sizes, {rows, hidden});
                      const at::Tensor ids = random_ids(sizes);
                      return PreparedTrial{
                          .call = [=] { (void)kernels::embedding_forward(table, ids); },
                          .bytes = 2 * pass};
                    }});
  trials.push_back(
      {"embedding backward", size, [=] {
         const at::Tensor grad = random(sizes, {sizes.tokens(), hidden});
         const at::Tensor ids = random_ids(sizes);
         const auto table =
             static_cast<double>(kernels::embedding_backward(grad, ids, rows).nbytes());
         return PreparedTrial{.call = [=] { (void)kernels::embedding_backward(grad, ids, rows); },
                              .bytes = pass + table};
       }});
}

void append_loss(std::vector<Trial>& trials, const TrialSizes& sizes) {
  const std::int64_t tokens = sizes.tokens();
  const std::int64_t rows = sizes.vocabulary;
  trials.push_back(
      {"loss and its gradient", text_of(tokens, rows), [=] {
         // Each call reads what the one before has left: other values, the same work.
         at::Tensor logits = random(sizes, {tokens, rows});
         const at::Tensor labels = random_ids(sizes);
         return PreparedTrial{
             .call =
                 [=]() mutable { (void)kernels::token_loss_tensor(logits, labels, rows, true); },
             .bytes = 2 * bytes_of(sizes, tokens * rows)};
       }});
}

}  // namespace

std::vector<Trial> product_trials(const TrialSizes& sizes) {
  std::vector<Trial> trials;
  append_products(trials, sizes, {"qkv", sizes.hidden, sizes.qkv()});
  append_products(trials, sizes, {"attention out", sizes.hidden, sizes.hidden});
  append_products(trials, sizes, {"up", sizes.hidden, sizes.ffn});
  append_products(trials, sizes, {"down", sizes.ffn, sizes.hidden});
  append_products(trials, sizes, {"head", sizes.hidden, sizes.vocabulary});
  return trials;
}

std::vector<Trial> attention_trials(const TrialSizes& sizes) {
  const kernels::AttentionShape shape = attention_shape(sizes);
  const double flops = attention_flops(sizes);
  const std::string size = fmt::format(
      "{} x {} heads of {} x {}", sizes.batch, shape.num_heads, sizes.sequence, shape.head_dim);
  const Shape packed = {sizes.batch, sizes.sequence, sizes.qkv()};
  return {{"causal forward",
           size,
           [=] {
             const at::Tensor qkv = random(sizes, packed);
             return PreparedTrial{.call = [=] { (void)kernels::attention_forward(qkv, shape); },
                                  .flops = flops};
           }},
          {"causal backward", size, [=] {
             const at::Tensor qkv = random(sizes, packed);
             const at::Tensor grad = random(sizes, {sizes.batch, sizes.sequence, sizes.hidden});
             const kernels::AttentionResult result = kernels::attention_forward(qkv, shape);
             return PreparedTrial{
                 .call = [=] { (void)kernels::attention_backward(grad, qkv, result, shape); },
                 .flops = 2.5 * flops};
           }}};
}

std::vector<Trial> kernel_trials(const TrialSizes& sizes) {
  std::vector<Trial> trials;
  append_norm(trials, sizes);
  sizes.activation == ActivationKind::swiglu ? append_swiglu(trials, sizes)
                                             : append_activation(trials, sizes);
  trials.push_back({"sums of columns", text_of(sizes.tokens(), sizes.ffn), [=] {
                      const at::Tensor x = random(sizes, {sizes.tokens(), sizes.ffn});
                      return PreparedTrial{.call = [=] { (void)kernels::column_sums(x); },
                                           .bytes = bytes_of(sizes, x.numel())};
                    }});
  append_table(trials, sizes);
  append_loss(trials, sizes);
  return trials;
}

}  // namespace colossal
