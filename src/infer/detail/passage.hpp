// How do all weights of a model pass through the memory of one tensor?
#pragma once

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/safetensors.hpp"
#include "config/config.hpp"
#include "core/output_file.hpp"
#include "mesh/context.hpp"
#include "nn/parameter.hpp"

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

namespace colossal::detail {

/// Every parameter that owns memory, of the whole model on one process.
[[nodiscard]] std::vector<ParamSpec> owning_parameters(const Config& config,
                                                       const ParallelContext& context);

/// One record for each of `specs`, all with the same memory: each is valid only in its own `bring`
/// or `keep`, which the caller sets. The memory is that of the largest tensor.
[[nodiscard]] std::vector<TensorRecord> sharing_records(const std::vector<ParamSpec>& specs,
                                                        at::ScalarType dtype);

/// The description of the model that lies beside its weights.
[[nodiscard]] std::filesystem::path config_beside(const std::filesystem::path& weights);

/// Gives both finished files their names, or neither: what one failure leaves must not be in the
/// way of the next attempt. `name` is that of the description. Errors: environment "output-write".
void commit_both(OutputFile& description,
                 const std::filesystem::path& name,
                 SafetensorsWriter& weights);

}  // namespace colossal::detail
