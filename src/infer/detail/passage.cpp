// Which records share memory, and for which parameters?
#include "infer/detail/passage.hpp"

#include "config/load.hpp"
#include "core/error.hpp"
#include "models/zoo.hpp"
#include "nn/layers.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <memory>
#include <system_error>

namespace colossal::detail {
namespace {

void add_owning(Block& block, std::vector<ParamSpec>& specs) {
  for (const Parameter* const parameter : block.parameters()) {
    if (parameter->spec().tied_to.empty()) {
      specs.push_back(parameter->spec());
    }
  }
}

}  // namespace

std::vector<ParamSpec> owning_parameters(const Config& config, const ParallelContext& context) {
  const std::unique_ptr<LayerFactory> layers = serial_factory(context);
  std::vector<ParamSpec> specs;
  for (const BlockDef& def :
       zoo().make(yaml_word(config.model.type), config.model)->blocks(*layers)) {
    add_owning(*def.build(), specs);
  }
  return specs;
}

std::vector<TensorRecord> sharing_records(const std::vector<ParamSpec>& specs,
                                          at::ScalarType dtype) {
  std::int64_t largest = 0;
  for (const ParamSpec& spec : specs) {
    largest = std::max(largest, numel(spec.shape));
  }
  const at::Tensor memory = at::empty({largest}, dtype);
  std::vector<TensorRecord> records;
  for (const ParamSpec& spec : specs) {
    const Shape zeros(spec.shape.size(), 0);
    records.push_back({.name = "model/" + spec.name,
                       .global = spec.shape,
                       .local = memory.narrow(0, 0, numel(spec.shape)).view(spec.shape),
                       .regions = {{zeros, zeros, spec.shape}}});
  }
  return records;
}

std::filesystem::path config_beside(const std::filesystem::path& weights) {
  return weights.parent_path() / "config.json";
}

void commit_both(OutputFile& description,
                 const std::filesystem::path& name,
                 SafetensorsWriter& weights) {
  description.commit();
  try {
    weights.commit();
  } catch (const Error&) {
    std::error_code ignored;
    std::filesystem::remove(name, ignored);
    throw;
  }
}

}  // namespace colossal::detail
