// What is a model made of? A list of blocks; the autograd graph is cut at every block boundary.
#pragma once

#include "core/batch.hpp"
#include "nn/parameter.hpp"

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace colossal {

/// What crosses a block boundary: a small ordered set of named tensors; order is part of the
/// contract.
class Activation {
 public:
  /// Errors: internal "activation-name" if absent.
  [[nodiscard]] const at::Tensor& operator[](std::string_view name) const;
  /// Replaces the tensor of that name or appends a new name.
  void set(std::string_view name, at::Tensor tensor);
  [[nodiscard]] std::span<const std::pair<std::string, at::Tensor>> tensors() const noexcept {
    return tensors_;
  }
  /// Sum over this micro-batch's labelled tokens; defined only by the last block.
  at::Tensor loss_sum;
  /// Labelled rows that were classified right; defined only by the last block of a classifier, in
  /// evaluation.
  at::Tensor num_correct;

 private:
  std::vector<std::pair<std::string, at::Tensor>> tensors_;
};

/// Name, global shape, layout and dtype of one boundary tensor, known from the configuration alone.
struct BoundarySpec {
  std::string name;
  Shape global;
  Layout layout;
  at::ScalarType dtype = at::kFloat;
  bool needs_grad = true;
};

/// Cost of one block on one micro-batch, from closed formulas, for this rank.
struct BlockCost {
  double forward_flops = 0;
  double backward_flops = 0;
  std::int64_t param_bytes = 0;
  std::int64_t activation_bytes = 0;  ///< kept for backward, its input too
  std::int64_t boundary_bytes = 0;    ///< its outputs
  std::int64_t forward_bytes = 0;     ///< forward holds at most beside what it keeps and returns
  std::int64_t backward_bytes = 0;    ///< backward holds at most beside what was kept and the
                                      ///< gradients of the outputs
};

/// One cut of the model: forward is pure but for autograd and the keyed random numbers of the
/// batch.
class Block {
 public:
  virtual ~Block() = default;
  virtual Activation forward(const Activation& in, const Batch& batch) = 0;
  /// Names, order and shapes of what forward returns (gradients mirror them); empty for a block
  /// that returns the loss.
  [[nodiscard]] virtual std::vector<BoundarySpec> outputs(const BatchShape& shape) const = 0;
  [[nodiscard]] virtual std::vector<Parameter*> parameters() = 0;
  [[nodiscard]] virtual BlockCost cost(const BatchShape& shape) const = 0;
};

/// How to build a block, before any memory exists.
struct BlockDef {
  std::string name;
  std::function<std::unique_ptr<Block>()> build;
};

/// A model: its blocks in order.
using ModelDef = std::vector<BlockDef>;

}  // namespace colossal
