// The GPT family, as in the papers' figures. Suffixes: b batch, s sequence, h hidden, d packed
// heads, f feed-forward, v vocabulary.
#include "models/gpt.hpp"

#include "models/detail/decoder_bytes.hpp"
#include "models/detail/parts.hpp"
#include "nn/functions.hpp"

#include <ATen/ops/arange.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace colossal {

namespace {

using detail::hidden_only;
using detail::item_bytes_of;
using detail::normal;
using detail::parameters_of;
using detail::stored_bytes;
using detail::wide_bytes_of;

/// tokens -> token row + position row, dropout.
class EmbedBlock : public Block {
 public:
  EmbedBlock(const ModelConfig& m, LayerFactory& layers)
      : layers_(layers),
        hidden_(m.hidden_size),
        tokens_(layers.vocabulary(
            {"embed.tokens", m.vocab_size, padded_vocab(m), m.hidden_size, normal(m.init_std)})),
        positions_(layers.table(
            {"embed.positions", m.max_seq_length, 0, m.hidden_size, normal(m.init_std)})),
        dropout_(layers.dropout({"embed.dropout", m.dropout})) {}

  Activation forward(const Activation& /*in*/, const Batch& batch) override {
    const at::Tensor& tokens_bs = batch.at("tokens");
    const at::Tensor x_bsh = tokens_->forward(tokens_bs).add(positions_->forward(places(batch)));
    return hidden_only(dropout_->forward(x_bsh, {}, batch));
  }

  [[nodiscard]] std::vector<BoundarySpec> outputs(const BatchShape& shape) const override {
    return {layers_.hidden(shape, hidden_)};
  }

  [[nodiscard]] std::vector<Parameter*> parameters() override {
    return parameters_of(tokens_, positions_);
  }

  [[nodiscard]] BlockCost cost(const BatchShape& shape) const override {
    const std::int64_t item = item_bytes_of(layers_.hidden(shape, hidden_));
    BlockCost cost;  // two look-ups: no products, and only the indices are kept
    cost.param_bytes = stored_bytes(parameters_of(tokens_, positions_), item);
    cost.activation_bytes =
        (shape.batch + 1) * shape.sequence * static_cast<std::int64_t>(sizeof(std::int64_t));
    cost.boundary_bytes = shape.batch * shape.sequence * hidden_ * item;
    cost.backward_bytes = numel(tokens_->parameters().front()->spec().padded) * item;
    return cost;
  }

 private:
  /// Position of each token: given with the batch, in the row [S], or in its document [B,S].
  [[nodiscard]] static at::Tensor places(const Batch& batch) {
    if (const at::Tensor given = batch.find("positions"); given.defined()) {
      return given;
    }
    const at::Tensor& tokens_bs = batch.at("tokens");
    const at::Tensor places_s = at::arange(tokens_bs.size(1), tokens_bs.options());
    const at::Tensor starts_bs = batch.find("document_starts");
    return starts_bs.defined() ? places_s.sub(starts_bs) : places_s;
  }

  LayerFactory& layers_;
  std::int64_t hidden_;
  std::unique_ptr<Embedding> tokens_;
  std::unique_ptr<Embedding> positions_;
  std::unique_ptr<Dropout> dropout_;
};

/// x += dropout(attention(norm1(x))); x += dropout(mlp(norm2(x))).
class DecoderBlock : public Block {
 public:
  DecoderBlock(const ModelConfig& m, std::int64_t index, LayerFactory& layers)
      : model_(m), layers_(layers) {
    const std::string name = fmt::format("blocks.{}", index);
    const std::int64_t h = m.hidden_size;
    const std::int64_t head_dim = h / m.num_heads;
    const std::int64_t kv = m.num_kv_heads * head_dim;
    const InitSpec inner = normal(m.init_std);
    // each of the 2 L residual branches adds variance: scale their last weights down
    const InitSpec residual =
        normal(m.init_std / std::sqrt(2.0 * static_cast<double>(m.num_layers)));

    norm1_ = layers.norm({name + ".norm1", h, m.norm_eps});
    qkv_ = layers.expand({name + ".attn.qkv", h, h + 2 * kv, true, {h, kv, kv}, inner, {}});
    attention_ = layers.attention({name + ".attn.core",
                                   m.num_heads,
                                   m.num_kv_heads,
                                   head_dim,
                                   true,
                                   m.attention_dropout,
                                   m.attention == AttentionKind::math});
    out_ = layers.contract({name + ".attn.out", h, h, true, {}, residual, {}});
    dropout1_ = layers.dropout({name + ".attn.dropout", m.dropout});

    const bool gated = m.activation == ActivationKind::swiglu;
    const auto activation = gated ? std::nullopt : std::optional(m.activation);
    const std::int64_t f = m.ffn_hidden_size;
    norm2_ = layers.norm({name + ".norm2", h, m.norm_eps});
    gate_ = gated ? layers.expand({name + ".mlp.gate", h, f, true, {}, inner, {}, true}) : nullptr;
    up_ = layers.expand({name + ".mlp.up", h, f, true, {}, inner, activation, true});
    down_ = layers.contract({name + ".mlp.down", f, h, true, {}, residual, {}});
    dropout2_ = layers.dropout({name + ".mlp.dropout", m.dropout});
  }

  Activation forward(const Activation& in, const Batch& batch) override {
    auto [normed1_bsh, x_bsh] = norm1_->fork(in["hidden"]);
    const at::Tensor context_bsh = attention_->forward(qkv_->forward(normed1_bsh), batch);
    x_bsh = add(x_bsh, *out_, context_bsh, *dropout1_, batch);

    auto [normed2_bsh, y_bsh] = norm2_->fork(x_bsh);
    return hidden_only(add(y_bsh, *down_, inner(normed2_bsh), *dropout2_, batch));
  }

  [[nodiscard]] std::vector<BoundarySpec> outputs(const BatchShape& shape) const override {
    return {layers_.hidden(shape, model_.hidden_size)};
  }

  [[nodiscard]] std::vector<Parameter*> parameters() override { return all(); }

  [[nodiscard]] BlockCost cost(const BatchShape& shape) const override {
    const ModelConfig& m = model_;
    const std::int64_t tokens = shape.batch * shape.sequence;
    const std::int64_t h = m.hidden_size;
    const std::int64_t qkv = h + 2 * m.num_kv_heads * (h / m.num_heads);
    const std::int64_t f = m.ffn_hidden_size;
    const std::int64_t wide = m.activation == ActivationKind::swiglu ? 3 : 2;  // products with f
    const std::int64_t item = item_bytes_of(layers_.hidden(shape, h));

    BlockCost cost;
    // 2 per multiply-add; causal attention computes half of each of its two S x S products
    const auto weights = static_cast<double>(h * qkv + h * h + wide * h * f);
    const auto scores = static_cast<double>(shape.sequence * h);
    cost.forward_flops = static_cast<double>(tokens) * (2 * weights + 2 * scores);
    cost.backward_flops = 2 * cost.forward_flops;
    cost.param_bytes = stored_bytes(all(), item);
    const detail::DecoderBytes bytes(
        m, layers_.recompute(), shape, layers_.hidden(shape, h).dtype, layers_.device());
    cost.activation_bytes = bytes.kept();
    cost.boundary_bytes = tokens * h * item;
    cost.forward_bytes = bytes.forward();
    cost.backward_bytes = bytes.backward();
    return cost;
  }

 private:
  /// residual + dropout(layer(x)).
  static at::Tensor add(const at::Tensor& residual_bsh,
                        Linear& layer,
                        const at::Tensor& x,
                        Dropout& dropout,
                        const Batch& batch) {
    return dropout.drops(batch) ? dropout.forward(layer.forward(x), residual_bsh, batch)
                                : layer.forward_onto(residual_bsh, x);
  }

  /// What the last layer of the feed-forward branch reads.
  [[nodiscard]] at::Tensor inner(const at::Tensor& x_bsh) {
    at::Tensor up_bsf = up_->forward(x_bsh);
    if (gate_ != nullptr) {
      const Recompute& again = layers_.recompute();
      const Rebuild rebuild = again.gelu || again.mlp ? Rebuild::output : Rebuild::nothing;
      up_bsf = swiglu(gate_->forward(x_bsh), up_bsf, rebuild);
    }
    return up_bsf;
  }

  [[nodiscard]] std::vector<Parameter*> all() const {
    return parameters_of(norm1_, qkv_, out_, norm2_, gate_, up_, down_);
  }

  ModelConfig model_;
  LayerFactory& layers_;
  std::unique_ptr<Norm> norm1_;
  std::unique_ptr<Linear> qkv_;
  std::unique_ptr<AttentionCore> attention_;
  std::unique_ptr<Linear> out_;
  std::unique_ptr<Dropout> dropout1_;
  std::unique_ptr<Norm> norm2_;
  std::unique_ptr<Linear> gate_;
  std::unique_ptr<Linear> up_;
  std::unique_ptr<Linear> down_;
  std::unique_ptr<Dropout> dropout2_;
};

/// Final norm and vocabulary projection. With labels in the batch: the loss sum; without: "logits"
/// [B,S,V] of the unpadded vocabulary.
class HeadBlock : public Block {
 public:
  HeadBlock(const ModelConfig& m, LayerFactory& layers)
      : layers_(layers),
        hidden_(m.hidden_size),
        vocabulary_(m.vocab_size),
        padded_(padded_vocab(m)),
        norm_(layers.norm({"norm", m.hidden_size, m.norm_eps})),
        head_(layers.head({"head",
                           m.hidden_size,
                           m.vocab_size,
                           padded_vocab(m),
                           m.tie_embeddings ? "embed.tokens.weight" : "",
                           normal(m.init_std)})),
        loss_(layers.token_loss(m.vocab_size)) {}

  Activation forward(const Activation& in, const Batch& batch) override {
    const at::Tensor x_bsh = norm_->forward(in["hidden"]);
    Activation out;
    if (batch.fields.contains("labels")) {
      out.loss_sum = loss_->forward_head(*head_, x_bsh, batch.at("labels"), batch.loss);
    } else {
      out.set("logits", head_->forward(x_bsh).narrow(2, 0, vocabulary_));
    }
    return out;
  }

  [[nodiscard]] std::vector<BoundarySpec> outputs(const BatchShape& /*shape*/) const override {
    return {};
  }

  [[nodiscard]] std::vector<Parameter*> parameters() override {
    return parameters_of(norm_, head_);
  }

  [[nodiscard]] BlockCost cost(const BatchShape& shape) const override {
    const std::int64_t tokens = shape.batch * shape.sequence;
    const std::int64_t item = item_bytes_of(layers_.hidden(shape, hidden_));
    BlockCost cost;
    cost.forward_flops = 2.0 * static_cast<double>(tokens * hidden_ * padded_);
    cost.backward_flops = 2 * cost.forward_flops;
    cost.param_bytes = stored_bytes(parameters_of(norm_, head_), item);
    const bool again = layers_.recompute().norm;  // its result: forward holds it all the same
    const std::int64_t norm = again ? 0 : hidden_;
    const std::int64_t rebuilt = again ? tokens * hidden_ * item : 0;
    const std::int64_t statistics = 2 * wide_bytes_of(layers_.hidden(shape, hidden_));
    const std::int64_t rows = layers_.logit_rows(tokens);
    const LinearSize size{.rows = rows, .in = hidden_, .out = padded_};
    const at::ScalarType dtype = layers_.hidden(shape, hidden_).dtype;
    if (rows < tokens) {  // gradients are kept in place of logits
      cost.activation_bytes = tokens * ((2 * hidden_ + norm) * item + statistics) +
                              hidden_ * padded_ * wide_bytes_of(layers_.hidden(shape, hidden_));
      // of dtypes without a kernel that adds, the weight's gradient of some rows
      cost.forward_bytes = rebuilt + rows * (padded_ + hidden_) * item + hidden_ * padded_ * item;
      cost.backward_bytes = tokens * hidden_ * item;
      return cost;
    }
    cost.activation_bytes = tokens * ((hidden_ + norm + padded_) * item + statistics);
    cost.forward_bytes = rebuilt + linear_forward_bytes(size, dtype, layers_.device());
    cost.backward_bytes = rebuilt + linear_backward_bytes(size, dtype, layers_.device());
    return cost;
  }

 private:
  LayerFactory& layers_;
  std::int64_t hidden_;
  std::int64_t vocabulary_;
  std::int64_t padded_;
  std::unique_ptr<Norm> norm_;
  std::unique_ptr<Linear> head_;
  std::unique_ptr<TokenLoss> loss_;
};

class Gpt : public ModelBuilder {
 public:
  explicit Gpt(const ModelConfig& model) : model_(model) {}

  [[nodiscard]] ModelDef blocks(LayerFactory& layers) const override {
    ModelDef def;
    def.push_back(
        {"embed", [m = model_, &layers] { return std::make_unique<EmbedBlock>(m, layers); }});
    for (std::int64_t i = 0; i < model_.num_layers; ++i) {
      def.push_back({fmt::format("blocks.{}", i), [m = model_, i, &layers] {
                       return std::make_unique<DecoderBlock>(m, i, layers);
                     }});
    }
    def.push_back(
        {"head", [m = model_, &layers] { return std::make_unique<HeadBlock>(m, layers); }});
    return def;
  }

 private:
  ModelConfig model_;
};

}  // namespace

std::unique_ptr<ModelBuilder> make_gpt(const ModelConfig& model) {
  return std::make_unique<Gpt>(model);
}

}  // namespace colossal
