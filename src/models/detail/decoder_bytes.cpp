// What is alive when? Forward's local variables live to its end, whatever autograd keeps of them;
// in backward a node lets go of what it kept when it has run.
#include "models/detail/decoder_bytes.hpp"

#include "nn/functions.hpp"

#include <algorithm>

namespace colossal::detail {

DecoderBytes::DecoderBytes(const ModelConfig& model,
                           const Recompute& again,
                           const BatchShape& shape,
                           at::ScalarType dtype,
                           at::Device device)
    : model_(model),
      again_(again),
      dtype_(dtype),
      device_(device),
      item_(static_cast<std::int64_t>(c10::elementSize(dtype))),
      wide_(std::max<std::int64_t>(item_, sizeof(float))),
      tokens_(shape.batch * shape.sequence),
      num_scores_(shape.batch * model.num_heads * shape.sequence * shape.sequence),
      hidden_(model.hidden_size),
      qkv_(model.hidden_size + 2 * model.num_kv_heads * (model.hidden_size / model.num_heads)),
      inner_(model.ffn_hidden_size),
      products_(model.ffn_hidden_size * (model.activation == ActivationKind::swiglu ? 2 : 1)) {}

std::int64_t DecoderBytes::elements(std::int64_t per_token) const {
  return tokens_ * per_token * item_;
}

std::int64_t DecoderBytes::statistics(std::int64_t per_token) const {
  return tokens_ * per_token * wide_;
}

/// Whether probabilities exist: not by the fused kernel, which dropout rules out.
bool DecoderBytes::math() const {
  return model_.attention_dropout > 0 || model_.attention == AttentionKind::math;
}

/// Bytes of attention probabilities.
std::int64_t DecoderBytes::scores() const {
  return math() ? num_scores_ * wide_ : 0;
}

/// Bytes of what plain products of attention keep in place of qkv: a wide q, k and v of each head.
std::int64_t DecoderBytes::kept_factors() const {
  return math() ? statistics(3 * hidden_) : 0;
}

/// By how much they exceed qkv.
std::int64_t DecoderBytes::beyond_qkv() const {
  return math() ? kept_factors() - elements(qkv_) : 0;
}

/// Those kept for backward: also after dropout.
std::int64_t DecoderBytes::kept_scores() const {
  return scores() * (model_.attention_dropout > 0 ? 2 : 1);
}

/// Bytes of copies of 16-bit elements, on which attention computes.
std::int64_t DecoderBytes::widened(std::int64_t per_token) const {
  return item_ < wide_ ? statistics(per_token) : 0;
}

/// What the feed-forward half keeps beside its x.
std::int64_t DecoderBytes::feed_forward_kept() const {
  return (again_.norm ? 0 : hidden_) + (again_.mlp ? 0 : products_) +
         (again_.mlp || again_.gelu ? 0 : inner_);
}

/// x of both branches and their mean and 1/std; unless they are computed again: results of the
/// norms, of attention with its log-sums, and of the feed-forward products and their activation.
std::int64_t DecoderBytes::kept() const {
  const std::int64_t attention =
      hidden_ + (again_.norm ? 0 : hidden_) + qkv_ + (again_.attention ? 0 : hidden_);
  return elements(attention + hidden_ + feed_forward_kept()) +
         statistics(4 + (again_.attention ? 0 : model_.num_heads)) + kept_scores() + beyond_qkv();
}

/// kept() if nothing were computed again.
std::int64_t DecoderBytes::all_results() const {
  return elements(3 * hidden_ + qkv_ + 2 * hidden_ + products_ + inner_) +
         statistics(4 + (again_.attention ? 0 : model_.num_heads)) + kept_scores() + beyond_qkv();
}

std::int64_t DecoderBytes::in_forward(std::int64_t in, std::int64_t out, bool bias) const {
  return linear_forward_bytes(
      {.rows = tokens_, .in = in, .out = out, .bias = bias}, dtype_, device_);
}

/// With the gradient of the bias.
std::int64_t DecoderBytes::in_backward(std::int64_t in, std::int64_t out) const {
  return linear_backward_bytes({.rows = tokens_, .in = in, .out = out}, dtype_, device_) +
         out * item_;
}

std::int64_t DecoderBytes::forward() const {
  const std::int64_t at_end = kept() + elements(hidden_);  // what it keeps and returns
  const std::int64_t first =
      elements(2 * hidden_ + qkv_) + statistics(2) + in_forward(hidden_, qkv_, true);
  const std::int64_t attention = elements(3 * hidden_ + qkv_) + widened(qkv_ + hidden_) +
                                 statistics(2 + model_.num_heads) + kept_scores() + scores() +
                                 kept_factors();
  const std::int64_t up =
      all_results() - elements(inner_) + in_forward(hidden_, inner_, products_ > inner_);
  // The product is there beside its sum with x.
  const std::int64_t down = all_results() - elements(again_.mlp ? products_ : 0) +
                            elements(hidden_) +
                            std::max(in_forward(inner_, hidden_, true), elements(hidden_));
  return std::max({first, attention, up, all_results(), down}) - at_end;
}

std::int64_t DecoderBytes::backward() const {
  return std::max(feed_forward_backward(), attention_backward());
}

/// While backward is in the feed-forward half: in its second product with what is computed again
/// for it, in the activation, or in the first product, when the activation's result has gone.
std::int64_t DecoderBytes::feed_forward_backward() const {
  const bool gated = products_ > inner_;
  const std::int64_t rebuilt = again_.mlp ? products_ : 0;
  const std::int64_t gone = again_.mlp || again_.gelu ? 0 : inner_;  // after the second product
  const std::int64_t dropped = model_.dropout > 0 ? hidden_ : 0;
  const std::int64_t down =
      elements(rebuilt + inner_ - gone + dropped) + in_backward(inner_, hidden_);
  const std::int64_t activation = elements(rebuilt + inner_ + products_ - gone);
  const std::int64_t gradients = gated ? rebuilt : 2 * inner_;  // less what was kept of products
  const std::int64_t up =
      elements(gradients - gone + (again_.norm ? hidden_ : 0)) + in_backward(hidden_, inner_);
  return std::max({down, activation, up});
}

/// While plain products of attention go backward, beyond what they kept and its result, which has
/// gone: in the product with v, in softmax or dropout, and when gradients of q, k and v are put
/// together.
std::int64_t DecoderBytes::plain_core_backward() const {
  const std::int64_t product =
      elements(hidden_) + widened(hidden_) + statistics(hidden_) + scores();
  const std::int64_t softmax = (model_.attention_dropout > 0 ? 1 : 2) * scores();
  const std::int64_t together = statistics(3 * qkv_ - 2 * hidden_) - kept_scores();
  return std::max({product, softmax, together});
}

/// The same in the attention half, when the other half and its x have gone and left a gradient.
std::int64_t DecoderBytes::attention_backward() const {
  const std::int64_t left = -feed_forward_kept();
  const std::int64_t rebuilt = again_.attention ? hidden_ : 0;
  const std::int64_t dropped = model_.dropout > 0 ? hidden_ : 0;
  const std::int64_t contract = elements(left + rebuilt + dropped) + in_backward(hidden_, hidden_);
  const std::int64_t core =
      math() ? elements(left - hidden_) + plain_core_backward()
             : elements(left + rebuilt + hidden_ + qkv_) + widened(2 * (hidden_ + qkv_));
  // What attention kept has gone, its gradient is there.
  const std::int64_t gone = again_.attention ? 0 : hidden_;
  const std::int64_t expand = elements(left - gone + (again_.norm ? hidden_ : 0)) +
                              in_backward(hidden_, qkv_) - kept_scores() - beyond_qkv();
  return std::max({contract, core, expand, std::int64_t{0}});
}

}  // namespace colossal::detail
