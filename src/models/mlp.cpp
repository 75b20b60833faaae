// The multi-layer perceptron. Suffixes: b batch, s sequence (of length 1), i and o features.
#include "models/mlp.hpp"

#include "models/detail/parts.hpp"
#include "nn/functions.hpp"

#include <ATen/ops/argmax.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/sum.h>
#include <fmt/format.h>

namespace colossal {
namespace {

using detail::hidden_only;
using detail::item_bytes_of;
using detail::normal;
using detail::parameters_of;
using detail::stored_bytes;

/// Features that a layer reads and makes.
struct Widths {
  std::int64_t in = 0;
  std::int64_t out = 0;
};

Widths widths_of(const ModelConfig& model, std::size_t index) {
  return {.in = index == 0 ? model.in_features : model.layers[index - 1],
          .out = index == model.layers.size() ? model.out_features : model.layers[index]};
}

/// What a layer reads: the batch's features, in the dtype of the weights, or the block before it.
at::Tensor input_of(std::size_t index, const Activation& in, const Batch& batch, Linear& layer) {
  return index == 0 ? batch.at("features").to(layer.parameters().front()->tensor().scalar_type())
                    : in["hidden"];
}

/// Products of the layer, its weights, and its input and output kept for backward.
BlockCost linear_cost(const Widths& widths,
                      const BatchShape& shape,
                      const std::vector<Parameter*>& parameters,
                      at::ScalarType dtype,
                      at::Device device,
                      bool activates) {
  const std::int64_t rows = shape.batch * shape.sequence;
  const auto item_bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
  BlockCost cost;
  cost.forward_flops = 2.0 * static_cast<double>(rows * widths.in * widths.out);
  cost.backward_flops = 2 * cost.forward_flops;
  cost.param_bytes = stored_bytes(parameters, item_bytes);
  cost.activation_bytes = rows * (widths.in + widths.out) * item_bytes;
  const LinearSize size{.rows = rows, .in = widths.in, .out = widths.out, .bias = !activates};
  cost.forward_bytes = linear_forward_bytes(size, dtype, device);
  cost.backward_bytes = linear_backward_bytes(size, dtype, device);
  return cost;
}

/// x -> relu(x W^T + b)
class HiddenBlock : public Block {
 public:
  HiddenBlock(const ModelConfig& m, std::size_t index, LayerFactory& layers)
      : layers_(layers),
        index_(index),
        widths_(widths_of(m, index)),
        linear_(layers.expand({fmt::format("layers.{}", index),
                               widths_.in,
                               widths_.out,
                               true,
                               {},
                               normal(m.init_std),
                               ActivationKind::relu})) {}

  Activation forward(const Activation& in, const Batch& batch) override {
    return hidden_only(linear_->forward(input_of(index_, in, batch, *linear_)));
  }

  [[nodiscard]] std::vector<BoundarySpec> outputs(const BatchShape& shape) const override {
    return {layers_.hidden(shape, widths_.out)};
  }

  [[nodiscard]] std::vector<Parameter*> parameters() override { return parameters_of(linear_); }

  [[nodiscard]] BlockCost cost(const BatchShape& shape) const override {
    const BoundarySpec out = layers_.hidden(shape, widths_.out);
    BlockCost cost =
        linear_cost(widths_, shape, parameters_of(linear_), out.dtype, layers_.device(), true);
    cost.boundary_bytes = shape.batch * shape.sequence * widths_.out * item_bytes_of(out);
    cost.backward_bytes += cost.boundary_bytes;  // the gradient before the activation
    return cost;
  }

 private:
  LayerFactory& layers_;
  std::size_t index_;
  Widths widths_;
  std::unique_ptr<Linear> linear_;
};

/// Logits and their loss; in evaluation also how many rows are classified right. Without labels in
/// the batch: "logits" [B,1,out_features].
class ClassifierBlock : public Block {
 public:
  ClassifierBlock(const ModelConfig& m, LayerFactory& layers)
      : layers_(layers),
        index_(m.layers.size()),
        widths_(widths_of(m, index_)),
        linear_(layers.expand(
            {"head", widths_.in, widths_.out, true, {}, normal(m.init_std), std::nullopt})),
        loss_(layers.token_loss(m.out_features)) {}

  Activation forward(const Activation& in, const Batch& batch) override {
    const at::Tensor logits_bso = linear_->forward(input_of(index_, in, batch, *linear_));
    Activation out;
    if (!batch.fields.contains("labels")) {
      out.set("logits", logits_bso);
      return out;
    }
    const at::Tensor& labels_bs = batch.at("labels");
    if (!batch.training) {  // before the loss, which consumes the logits
      out.num_correct = at::sum(at::eq(at::argmax(logits_bso, -1), labels_bs));
    }
    out.loss_sum = loss_->forward(logits_bso, labels_bs, batch.loss);
    return out;
  }

  [[nodiscard]] std::vector<BoundarySpec> outputs(const BatchShape& /*shape*/) const override {
    return {};
  }

  [[nodiscard]] std::vector<Parameter*> parameters() override { return parameters_of(linear_); }

  [[nodiscard]] BlockCost cost(const BatchShape& shape) const override {
    return linear_cost(widths_,
                       shape,
                       parameters_of(linear_),
                       layers_.hidden(shape, widths_.in).dtype,
                       layers_.device(),
                       false);
  }

 private:
  LayerFactory& layers_;
  std::size_t index_;
  Widths widths_;
  std::unique_ptr<Linear> linear_;
  std::unique_ptr<TokenLoss> loss_;
};

class Mlp : public ModelBuilder {
 public:
  explicit Mlp(const ModelConfig& model) : model_(model) {}

  [[nodiscard]] ModelDef blocks(LayerFactory& layers) const override {
    ModelDef def;
    for (std::size_t i = 0; i < model_.layers.size(); ++i) {
      def.push_back({fmt::format("layers.{}", i), [m = model_, i, &layers] {
                       return std::make_unique<HiddenBlock>(m, i, layers);
                     }});
    }
    def.push_back(
        {"head", [m = model_, &layers] { return std::make_unique<ClassifierBlock>(m, layers); }});
    return def;
  }

 private:
  ModelConfig model_;
};

}  // namespace

std::unique_ptr<ModelBuilder> make_mlp(const ModelConfig& model) {
  return std::make_unique<Mlp>(model);
}

}  // namespace colossal
