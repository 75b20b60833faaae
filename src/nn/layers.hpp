// Which layers may a model ask for? Roles, never modes: the factory of the tensor mode decides how
// each is split.
#pragma once

#include "config/config.hpp"
#include "core/batch.hpp"
#include "nn/block.hpp"
#include "nn/parameter.hpp"

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace colossal {

/// Common part of all layers: they own parameters (specs; memory comes later).
class Layer {
 public:
  virtual ~Layer() = default;
  [[nodiscard]] virtual std::vector<Parameter*> parameters() = 0;
};

/// y_bso = act(x_bsi W^T + b), W [out, in].
class Linear : public Layer {
 public:
  virtual at::Tensor forward(const at::Tensor& x_bsi) = 0;
  /// residual_bso + forward(x_bsi), in one kernel where there is one. Not with an activation.
  virtual at::Tensor forward_onto(const at::Tensor& residual_bso, const at::Tensor& x_bsi) = 0;
};

/// Rows of a table [rows, hidden] by index.
class Embedding : public Layer {
 public:
  /// Errors: data "token-range" for an index outside the table.
  virtual at::Tensor forward(const at::Tensor& indices) = 0;
};

/// Normalisation over the last dim, statistics in the wider of fp32 and the input's dtype.
class Norm : public Layer {
 public:
  virtual at::Tensor forward(const at::Tensor& x_bsh) = 0;
  /// {norm(x), x}: the start of a residual branch. Go on with the second result in place of x: the
  /// gradients of both uses are then summed in the norm's own backward pass.
  virtual std::pair<at::Tensor, at::Tensor> fork(const at::Tensor& x_bsh) = 0;
};

/// Core of attention: packed qkv_bsd (q heads, then k heads, then v heads on the last dim) to
/// context_bsh. Applies scaling, mask and attention dropout. With "document_starts" in the batch, a
/// token sees its own document only.
class AttentionCore : public Layer {
 public:
  virtual at::Tensor forward(const at::Tensor& qkv_bsd, const Batch& batch) = 0;
};

/// Inverted dropout of a [B,S,H] activation, keyed by (seed, site, step, global element index).
class Dropout : public Layer {
 public:
  /// Whether it drops anything of this batch.
  [[nodiscard]] virtual bool drops(const Batch& batch) const = 0;
  /// residual + dropout(x); `residual` may be undefined.
  virtual at::Tensor forward(const at::Tensor& x_bsh,
                             const at::Tensor& residual_bsh,
                             const Batch& batch) = 0;
};

/// Sum over labelled tokens of the cross entropy of logits_bsv (padded vocabulary columns excluded)
/// with labels_bs, smoothed as `rule` says. Consumes the logits: nobody may use them after.
class TokenLoss : public Layer {
 public:
  virtual at::Tensor forward(const at::Tensor& logits_bsv,
                             const at::Tensor& labels_bs,
                             const LossRule& rule) = 0;
  /// forward(head.forward(x_bsh)), without logits of all tokens at once where
  /// LayerFactory::logit_rows() says so.
  virtual at::Tensor forward_head(Linear& head,
                                  const at::Tensor& x_bsh,
                                  const at::Tensor& labels_bs,
                                  const LossRule& rule) = 0;
};

/// Which results of layers backward computes again instead of keeping them; the values are the
/// same, bit for bit, but for gelu_tanh of bf16 on a GPU (README, decision 27).
struct Recompute {
  bool gelu = false;       ///< results of activation functions (of any kind)
  bool norm = false;       ///< results of normalisations
  bool attention = false;  ///< results of attention cores (not of `math` or with dropout)
  bool mlp = false;        ///< products of feed-forward layers too, not only their activations
};

/// What the factory must know of a linear layer.
struct LinearSpec {
  std::string name;  ///< canonical prefix: "blocks.3.attn.qkv"
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool bias = true;
  std::vector<std::int64_t>
      out_parts;  ///< fused parts of the output (q,k,v), each split on its own; empty: one
  InitSpec init;
  std::optional<ActivationKind>
      activation;             ///< gelu, gelu_tanh or relu of the result; needs a bias
  bool feed_forward = false;  ///< of those whose results Recompute::mlp drops
};

/// What the factory must know of a vocabulary or table.
struct EmbeddingSpec {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t padded_rows = 0;  ///< 0: equal to rows
  std::int64_t hidden = 0;
  InitSpec init;
};

/// What the factory must know of the head that makes logits.
struct HeadSpec {
  std::string name;
  std::int64_t hidden = 0;
  std::int64_t vocabulary = 0;
  std::int64_t padded_vocabulary = 0;
  std::string
      tied_to;  ///< parameter that holds the weight ("embed.tokens.weight"); empty: own weight
  InitSpec init;
};

/// What the factory must know of a normalisation.
struct NormSpec {
  std::string name;
  std::int64_t hidden = 0;
  double eps = 1e-5;
};

/// What the factory must know of an attention core.
struct AttentionSpec {
  std::string name;  ///< "blocks.3.attn.core": the random key of its dropout
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  bool causal = true;
  double dropout = 0;
  bool math = false;  ///< force the reference path (attention: math)
};

/// What the factory must know of a dropout site.
struct DropoutSpec {
  std::string site;  ///< "blocks.3.attn.dropout": part of the random key
  double p = 0;
};

/// Makes the layers of one tensor mode. One factory serves all blocks of a rank.
class LayerFactory {
 public:
  virtual ~LayerFactory() = default;
  virtual std::unique_ptr<Linear> expand(
      const LinearSpec& spec) = 0;  ///< hidden -> wide (column-like)
  virtual std::unique_ptr<Linear> contract(
      const LinearSpec& spec) = 0;  ///< wide -> hidden (row-like)
  virtual std::unique_ptr<Embedding> vocabulary(const EmbeddingSpec& spec) = 0;
  virtual std::unique_ptr<Embedding> table(const EmbeddingSpec& spec) = 0;  ///< positions and types
  virtual std::unique_ptr<Linear> head(
      const HeadSpec& spec) = 0;                                 ///< hidden -> vocabulary, no bias
  virtual std::unique_ptr<Norm> norm(const NormSpec& spec) = 0;  ///< LayerNorm
  virtual std::unique_ptr<AttentionCore> attention(const AttentionSpec& spec) = 0;
  virtual std::unique_ptr<Dropout> dropout(const DropoutSpec& spec) = 0;
  virtual std::unique_ptr<TokenLoss> token_loss(std::int64_t vocabulary) = 0;
  /// Of this many tokens of a micro-batch, those whose logits training holds at a time.
  [[nodiscard]] virtual std::int64_t logit_rows(std::int64_t tokens) const = 0;
  /// Where its layers compute.
  [[nodiscard]] virtual at::Device device() const = 0;
  /// What its layers compute again in backward.
  [[nodiscard]] virtual const Recompute& recompute() const noexcept = 0;
  /// The [B,S,H] tensor "hidden" between blocks for micro-batches of this shape.
  [[nodiscard]] virtual BoundarySpec hidden(const BatchShape& shape, std::int64_t size) const = 0;
};

/// The factory of tensor size 1: every layer whole on its rank. Keeps a reference to `context`.
/// `logit_rows`: most tokens whose logits a head makes at a time; unset: all on a CPU, as many as
/// products need for their full rate on a GPU.
[[nodiscard]] std::unique_ptr<LayerFactory> serial_factory(
    const ParallelContext& context,
    const Recompute& recompute = {},
    std::optional<std::int64_t> logit_rows = std::nullopt);

}  // namespace colossal
