// How does a test run a whole model without trainer and chunks?
#pragma once

#include "config/load.hpp"
#include "mesh/context.hpp"
#include "models/zoo.hpp"
#include "nn/layers.hpp"

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

namespace colossal::test {

/// A whole model with its own memory, as one graph over all blocks.
class LocalModel {
 public:
  explicit LocalModel(const Config& config)
      : context_(config), layers_(serial_factory(context_)), builder_(make(config.model)) {
    for (const BlockDef& def : builder_->blocks(*layers_)) {
      blocks_.push_back(def.build());
      for (Parameter* const parameter : blocks_.back()->parameters()) {
        parameters_.push_back(parameter);
      }
    }
    materialize(parameters_, context_);
  }

  /// The last block's activation: loss_sum, or "logits" if the batch has no labels.
  [[nodiscard]] Activation forward(const Batch& batch) const {
    Activation x;
    for (const auto& block : blocks_) {
      x = block->forward(x, batch);
    }
    return x;
  }

  [[nodiscard]] const std::vector<std::unique_ptr<Block>>& blocks() const { return blocks_; }
  [[nodiscard]] const std::vector<Parameter*>& parameters() const { return parameters_; }
  [[nodiscard]] const ParallelContext& context() const { return context_; }

  /// The parameter of that canonical name; null if there is none.
  [[nodiscard]] Parameter* find(const std::string& name) const {
    for (Parameter* const parameter : parameters_) {
      if (parameter->spec().name == name) {
        return parameter;
      }
    }
    return nullptr;
  }

  /// The logical part (padding cut off) of a tensor shaped like the parameter.
  [[nodiscard]] static at::Tensor logical(const Parameter& parameter, const at::Tensor& x) {
    return x.narrow(0, 0, parameter.spec().shape[0]);
  }

 private:
  static std::unique_ptr<ModelBuilder> make(const ModelConfig& model) {
    return zoo().make(yaml_word(model.type), model);
  }

  ParallelContext context_;
  std::unique_ptr<LayerFactory> layers_;
  std::unique_ptr<ModelBuilder> builder_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Parameter*> parameters_;
};

}  // namespace colossal::test
