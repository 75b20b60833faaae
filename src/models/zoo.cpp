// The table of model types, and what can be counted on any model.
#include "models/zoo.hpp"

#include "models/gpt.hpp"
#include "models/mlp.hpp"

namespace colossal {

const Registry<ModelBuilder, const ModelConfig&>& zoo() {
  static const Registry<ModelBuilder, const ModelConfig&> table(
      "model.type", {{"gpt", make_gpt}, {"mlp", make_mlp}});
  return table;
}

std::int64_t num_parameters(std::span<const std::unique_ptr<Block>> blocks) {
  std::int64_t count = 0;
  for (const std::unique_ptr<Block>& block : blocks) {
    for (const Parameter* const parameter : block->parameters()) {
      count += parameter->spec().tied_to.empty() ? numel(parameter->spec().shape) : 0;
    }
  }
  return count;
}

}  // namespace colossal
