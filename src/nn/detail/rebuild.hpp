// How does a node have what it did not keep computed again in backward? The node that made a tensor
// is kept in its place and asked.
#pragma once

#include "nn/functions.hpp"
#include "nn/gradient.hpp"
#include "nn/kernels/columns.hpp"
#include "nn/kernels/cuda/columns.hpp"

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <string>
#include <utility>

namespace colossal::detail {

using torch::autograd::AutogradContext;
using torch::autograd::Node;

/// The node that made a tensor, as a value that a context can hold.
struct Maker : torch::CustomClassHolder {
  explicit Maker(std::shared_ptr<Node> made_by) : node(std::move(made_by)) {}
  std::shared_ptr<Node> node;
};

/// Whether the node computes its first output again when it is asked to (Rebuild).
bool rebuilds(Node& node);
/// That output, from what the node keeps; before its own backward only.
at::Tensor rebuild(Node& node);

/// What a node saves of its input x: nothing if the node that made x computes it again.
inline at::Tensor keep(AutogradContext* ctx, const std::string& slot, const at::Tensor& x) {
  std::shared_ptr<Node> maker = x.grad_fn();
  if (maker == nullptr || x.output_nr() != 0 || !rebuilds(*maker)) {
    return x;
  }
  ctx->saved_data[slot] = c10::IValue::make_capsule(c10::make_intrusive<Maker>(std::move(maker)));
  return {};
}

/// An input that keep() was given, `saved` being what it returned. One that is computed again stays
/// for the next call.
inline at::Tensor kept(AutogradContext* ctx, const std::string& slot, const at::Tensor& saved) {
  if (saved.defined()) {
    return saved;
  }
  c10::IValue& value = ctx->saved_data.at(slot);
  if (value.isCapsule()) {
    value = rebuild(*c10::static_intrusive_pointer_cast<Maker>(value.toCapsule())->node);
  }
  return value.toTensor();
}

/// The same for the last time: what was computed again goes with the caller's tensor.
inline at::Tensor take(AutogradContext* ctx, const std::string& slot, const at::Tensor& saved) {
  at::Tensor x = kept(ctx, slot, saved);
  ctx->saved_data.erase(slot);
  return x;
}

/// Marks the node as one of those for which rebuilds() is true.
inline void set_rebuild(AutogradContext* ctx, Rebuild rebuild) {
  ctx->saved_data["rebuild"] = rebuild != Rebuild::nothing;
}

/// sum += x, or sum = x where it is_unwritten().
inline void accumulate(const at::Tensor& sum, const at::Tensor& x) {
  if (is_unwritten(sum)) {
    sum.copy_(x);
  } else {
    sum.add_(x);
  }
}

/// Gives `gradient` to a parameter: on a GPU by writing it, or adding it to what the parameter has
/// already, rounded once, instead of letting autograd convert it first; undefined then.
inline at::Tensor give(const at::Tensor& parameter, const at::Tensor& gradient) {
  if (!gradient.defined() || !gradient.is_cuda() || !parameter.is_leaf() ||
      !parameter.grad().defined()) {
    return gradient;
  }
  accumulate(parameter.grad(), gradient);
  return {};
}

/// Gives the sums over the rows of g to a bias.
inline at::Tensor give_column_sums(const at::Tensor& bias, const at::Tensor& g_mo) {
  if (!takes_gradient(bias)) {
    return give(bias, kernels::column_sums(g_mo));
  }
  kernels::cuda::give_column_sums(bias.grad(), g_mo);
  return {};
}

}  // namespace colossal::detail
