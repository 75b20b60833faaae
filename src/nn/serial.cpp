// What are the layers of a rank that holds whole tensors? The factory of tensor size 1.
#include "core/error.hpp"
#include "nn/functions.hpp"
#include "nn/kernels/element.hpp"
#include "nn/kv_cache.hpp"
#include "nn/layers.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/triu.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace colossal {

namespace {

/// A whole parameter: replicated over the axes that hold different samples or tokens.
ParamSpec whole(const std::string& name, Shape shape, const InitSpec& init) {
  ParamSpec spec;
  spec.name = name;
  spec.shape = std::move(shape);
  spec.padded = spec.shape;
  spec.layout.replicated = axes({Axis::dr, Axis::dp, Axis::sp});
  spec.init = init;
  return spec;
}

class SerialLinear : public Linear {
 public:
  SerialLinear(const LinearSpec& spec, const Recompute& recompute)
      : weight_(whole(spec.name + ".weight", {spec.out, spec.in}, spec.init)),
        activation_(spec.activation),
        rebuild_(rebuild_of(spec, recompute)) {
    if (spec.bias) {
      bias_.emplace(whole(spec.name + ".bias", {spec.out}, {}));
    }
  }

  explicit SerialLinear(const HeadSpec& spec) : weight_(head_weight(spec)) {}

  at::Tensor forward(const at::Tensor& x_bsi) override {
    return linear(
        x_bsi, weight_.tensor(), bias_ ? bias_->tensor() : at::Tensor(), activation_, rebuild_);
  }

  at::Tensor forward_onto(const at::Tensor& residual_bso, const at::Tensor& x_bsi) override {
    check(!activation_,
          ErrorKind::internal,
          "layer-use",
          "a residual is added to the result of an activation");
    return linear_onto(
        residual_bso, x_bsi, weight_.tensor(), bias_ ? bias_->tensor() : at::Tensor(), rebuild_);
  }

  std::vector<Parameter*> parameters() override {
    return bias_ ? std::vector<Parameter*>{&weight_, &*bias_} : std::vector<Parameter*>{&weight_};
  }

 private:
  static Rebuild rebuild_of(const LinearSpec& spec, const Recompute& recompute) {
    if (spec.feed_forward && recompute.mlp) {
      return Rebuild::product;
    }
    return spec.activation && recompute.gelu ? Rebuild::output : Rebuild::nothing;
  }

  static ParamSpec head_weight(const HeadSpec& spec) {
    ParamSpec weight = whole(spec.name + ".weight", {spec.vocabulary, spec.hidden}, spec.init);
    weight.padded = {spec.padded_vocabulary, spec.hidden};
    weight.tied_to = spec.tied_to;
    return weight;
  }

  Parameter weight_;
  std::optional<Parameter> bias_;
  std::optional<ActivationKind> activation_;
  Rebuild rebuild_ = Rebuild::nothing;
};

class SerialEmbedding : public Embedding {
 public:
  explicit SerialEmbedding(const EmbeddingSpec& spec) : weight_(table(spec)) {}

  at::Tensor forward(const at::Tensor& indices) override {
    if (indices.is_cpu()) {  // what is on a GPU cannot be read without waiting for it
      check_range(indices.reshape(-1).contiguous());
    }
    return colossal::embedding(weight_.tensor(), indices);
  }

  std::vector<Parameter*> parameters() override { return {&weight_}; }

 private:
  void check_range(const at::Tensor& indices_m) const {
    const std::int64_t rows = weight_.spec().shape[0];
    const std::int64_t* const index = indices_m.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < indices_m.numel(); ++i) {
      check(index[i] >= 0 && index[i] < rows,
            ErrorKind::data,
            "token-range",
            "index {} at place {} is outside {} of {} rows; check the data or the model's sizes",
            index[i],
            i,
            weight_.spec().name,
            rows);
    }
  }

  static ParamSpec table(const EmbeddingSpec& spec) {
    ParamSpec weight = whole(spec.name + ".weight", {spec.rows, spec.hidden}, spec.init);
    weight.padded[0] = spec.padded_rows == 0 ? spec.rows : spec.padded_rows;
    return weight;
  }

  Parameter weight_;
};

class SerialNorm : public Norm {
 public:
  SerialNorm(const NormSpec& spec, const Recompute& recompute)
      : weight_(whole(spec.name + ".weight", {spec.hidden}, {InitSpec::Kind::ones, 0})),
        bias_(whole(spec.name + ".bias", {spec.hidden}, {})),
        eps_(spec.eps),
        rebuild_(recompute.norm ? Rebuild::output : Rebuild::nothing) {}

  at::Tensor forward(const at::Tensor& x_bsh) override { return fork(x_bsh).first; }

  std::pair<at::Tensor, at::Tensor> fork(const at::Tensor& x_bsh) override {
    return layer_norm_fork(x_bsh, weight_.tensor(), bias_.tensor(), eps_, rebuild_);
  }

  std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

 private:
  Parameter weight_;
  Parameter bias_;
  double eps_;
  Rebuild rebuild_;
};

/// Key of one site in this batch. `sample_numel`: elements of one sample's activation, so that
/// `first` is the place of the micro-batch in the global batch.
kernels::DropoutKey dropout_key(std::uint64_t stream,
                                double p,
                                const Batch& batch,
                                std::int64_t sample_numel) {
  return {stream,
          static_cast<std::uint32_t>(batch.step),
          static_cast<std::uint64_t>(batch.first_row * sample_numel),
          p,
          batch.later};
}

class SerialDropout : public Dropout {
 public:
  SerialDropout(const DropoutSpec& spec, std::uint64_t seed)
      : stream_(stream_key(seed, spec.site)), p_(spec.p) {}

  [[nodiscard]] bool drops(const Batch& batch) const override { return p_ > 0 && batch.training; }

  at::Tensor forward(const at::Tensor& x_bsh,
                     const at::Tensor& residual_bsh,
                     const Batch& batch) override {
    if (!drops(batch)) {
      return residual_bsh.defined() ? at::add(residual_bsh, x_bsh) : x_bsh;
    }
    const std::int64_t sample_numel = x_bsh.size(1) * x_bsh.size(2);
    return keyed_dropout(x_bsh, residual_bsh, dropout_key(stream_, p_, batch, sample_numel));
  }

  std::vector<Parameter*> parameters() override { return {}; }

 private:
  std::uint64_t stream_;
  double p_;
};

class SerialAttention : public AttentionCore {
 public:
  /// `cache` may be null.
  SerialAttention(const AttentionSpec& spec,
                  std::uint64_t seed,
                  const Recompute& recompute,
                  KvCache* cache)
      : spec_(spec),
        stream_(stream_key(seed, spec.name)),
        rebuild_(recompute.attention ? Rebuild::output : Rebuild::nothing),
        cache_(cache),
        layer_(cache == nullptr ? 0 : cache->add_layer()) {}

  at::Tensor forward(const at::Tensor& qkv_bsd, const Batch& batch) override {
    const kernels::AttentionShape shape{
        spec_.num_heads, spec_.num_kv_heads, spec_.head_dim, spec_.causal};
    if (cache_ != nullptr) {
      return cache_->attend(layer_, qkv_bsd, shape);
    }
    const bool drop = spec_.dropout > 0 && batch.training;
    const at::Tensor starts_bs = batch.find("document_starts");
    if (!spec_.math && !drop) {
      return attention(qkv_bsd, shape, starts_bs, rebuild_);
    }
    // softmax of 16 bits would lose what is close to its top; scores could overflow fp16
    const at::Tensor wide_bsd = kernels::widened(qkv_bsd);
    const kernels::QkvViews heads = kernels::split_heads(wide_bsd, shape);
    return math_attention(heads, starts_bs, drop ? &batch : nullptr).to(qkv_bsd.scalar_type());
  }

  std::vector<Parameter*> parameters() override { return {}; }

 private:
  /// The reference: probabilities are stored, so dropout can act on them.
  [[nodiscard]] at::Tensor math_attention(const kernels::QkvViews& x,
                                          const at::Tensor& starts_bs,
                                          const Batch* dropped) const {
    const std::int64_t group = spec_.num_heads / spec_.num_kv_heads;
    const std::int64_t keys = x.k.size(2);
    const auto shared = [&](const at::Tensor& kv) { return kv.unsqueeze(2); };  // [B,m,1,S,d]
    const at::Tensor q = x.q.unflatten(1, {spec_.num_kv_heads, group});         // [B,m,g,S,d]
    const double scale = 1.0 / std::sqrt(static_cast<double>(spec_.head_dim));
    at::Tensor scores = at::matmul(q, shared(x.k).transpose(-1, -2)).mul(scale);
    if (spec_.causal) {
      scores = scores.masked_fill(hidden_keys(keys, starts_bs, scores.device()),
                                  -std::numeric_limits<double>::infinity());
    }
    at::Tensor p = at::softmax(scores, -1);
    if (dropped != nullptr) {
      const std::int64_t sample_numel = p.numel() / p.size(0);
      p = keyed_dropout(p, {}, dropout_key(stream_, spec_.dropout, *dropped, sample_numel));
    }
    return at::matmul(p, shared(x.v)).flatten(1, 2).transpose(1, 2).flatten(2);
  }

  /// Keys that a query does not see: later ones, and [B,1,1,S,S] those of other documents.
  [[nodiscard]] static at::Tensor hidden_keys(std::int64_t keys,
                                              const at::Tensor& starts_bs,
                                              at::Device device) {
    const at::Tensor future = at::ones({keys, keys}, at::device(device).dtype(at::kBool)).triu(1);
    if (!starts_bs.defined()) {
      return future;
    }
    const at::Tensor foreign = at::arange(keys, starts_bs.options()).lt(starts_bs.unsqueeze(-1));
    return future.logical_or(foreign).unsqueeze(1).unsqueeze(1);
  }

  AttentionSpec spec_;
  std::uint64_t stream_;
  Rebuild rebuild_;
  KvCache* cache_;
  int layer_;
};

/// Tokens whose logits a GPU holds at a time: enough for products at full rate.
constexpr std::int64_t kLogitRows = 16'384;

class SerialTokenLoss : public TokenLoss {
 public:
  SerialTokenLoss(std::int64_t vocabulary, std::optional<std::int64_t> logit_rows)
      : vocabulary_(vocabulary), logit_rows_(logit_rows) {}

  at::Tensor forward(const at::Tensor& logits_bsv,
                     const at::Tensor& labels_bs,
                     const LossRule& rule) override {
    return token_loss(logits_bsv, labels_bs, vocabulary_, rule);
  }

  at::Tensor forward_head(Linear& head,
                          const at::Tensor& x_bsh,
                          const at::Tensor& labels_bs,
                          const LossRule& rule) override {
    const std::int64_t rows = std::min(logit_rows_.value_or(labels_bs.numel()), labels_bs.numel());
    if (rows < labels_bs.numel() && !at::GradMode::is_enabled()) {
      return loss_in_parts(head, x_bsh.flatten(0, 1), labels_bs.flatten(), {rows, rule});
    }
    if (rows == labels_bs.numel() || !rule.factor) {
      return forward(head.forward(x_bsh), labels_bs, rule);
    }
    const std::vector<Parameter*> weights = head.parameters();
    check(weights.size() == 1, ErrorKind::internal, "layer-use", "a head has a weight and no bias");
    return head_loss(x_bsh, weights[0]->tensor(), labels_bs, vocabulary_, {rows, rule});
  }

  std::vector<Parameter*> parameters() override { return {}; }

 private:
  at::Tensor loss_in_parts(Linear& head,
                           const at::Tensor& x_mh,
                           const at::Tensor& labels_m,
                           const LossParts& parts) {
    at::Tensor sum;
    for (std::int64_t begin = 0; begin < labels_m.size(0); begin += parts.chunk_rows) {
      const std::int64_t count = std::min(parts.chunk_rows, labels_m.size(0) - begin);
      const at::Tensor logits = head.forward(x_mh.narrow(0, begin, count).unsqueeze(0));
      const at::Tensor loss = forward(logits, labels_m.narrow(0, begin, count), parts.rule);
      sum = sum.defined() ? sum.add(loss) : loss;
    }
    return sum;
  }

  std::int64_t vocabulary_;
  std::optional<std::int64_t> logit_rows_;
};

class SerialFactory : public LayerFactory {
 public:
  SerialFactory(const ParallelContext& context,
                const Recompute& recompute,
                KvCache* cache,
                std::optional<std::int64_t> logit_rows)
      : context_(context), recompute_(recompute), cache_(cache), logit_rows_(logit_rows) {}

  std::unique_ptr<Linear> expand(const LinearSpec& spec) override {
    return std::make_unique<SerialLinear>(spec, recompute_);
  }
  std::unique_ptr<Linear> contract(const LinearSpec& spec) override {
    return std::make_unique<SerialLinear>(spec, recompute_);
  }
  std::unique_ptr<Embedding> vocabulary(const EmbeddingSpec& spec) override {
    return std::make_unique<SerialEmbedding>(spec);
  }
  std::unique_ptr<Embedding> table(const EmbeddingSpec& spec) override {
    return std::make_unique<SerialEmbedding>(spec);
  }
  std::unique_ptr<Linear> head(const HeadSpec& spec) override {
    return std::make_unique<SerialLinear>(spec);
  }
  std::unique_ptr<Norm> norm(const NormSpec& spec) override {
    return std::make_unique<SerialNorm>(spec, recompute_);
  }
  std::unique_ptr<AttentionCore> attention(const AttentionSpec& spec) override {
    return std::make_unique<SerialAttention>(spec, context_.seed(), recompute_, cache_);
  }
  std::unique_ptr<Dropout> dropout(const DropoutSpec& spec) override {
    return std::make_unique<SerialDropout>(spec, context_.seed());
  }
  std::unique_ptr<TokenLoss> token_loss(std::int64_t vocabulary) override {
    return std::make_unique<SerialTokenLoss>(vocabulary, logit_rows_);
  }
  [[nodiscard]] std::int64_t logit_rows(std::int64_t tokens) const override {
    return std::min(tokens, logit_rows_.value_or(tokens));
  }

  [[nodiscard]] BoundarySpec hidden(const BatchShape& shape, std::int64_t size) const override {
    const std::int64_t rows = shape.batch * context_.mesh().size(data_axes());
    Layout layout;
    layout.dims = {{{Axis::dr, Axis::dp}, {}}, {{Axis::sp}, {}}};
    return {"hidden", {rows, shape.sequence, size}, layout, context_.dtype(), true};
  }

  [[nodiscard]] at::Device device() const override { return context_.device(); }

  [[nodiscard]] const Recompute& recompute() const noexcept override { return recompute_; }

 private:
  const ParallelContext& context_;
  Recompute recompute_;
  KvCache* cache_;
  std::optional<std::int64_t> logit_rows_;
};

}  // namespace

std::unique_ptr<LayerFactory> serial_factory(const ParallelContext& context,
                                             const Recompute& recompute,
                                             std::optional<std::int64_t> logit_rows) {
  if (!logit_rows && !context.device().is_cpu()) {
    logit_rows = kLogitRows;
  }
  return std::make_unique<SerialFactory>(context, recompute, nullptr, logit_rows);
}

std::unique_ptr<LayerFactory> serial_factory(const ParallelContext& context, KvCache& cache) {
  return std::make_unique<SerialFactory>(context, Recompute{}, &cache, std::nullopt);
}

}  // namespace colossal
