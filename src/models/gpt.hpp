// Which model type is "gpt"? GPT-2 and GPT-3: pre-norm decoder blocks with learned positions.
#pragma once

#include "models/zoo.hpp"

#include <memory>

namespace colossal {

/// Builder of model.type gpt; copies the section. Source: Radford et al. 2019; Brown et al. 2020
/// (model-zoo section 1).
[[nodiscard]] std::unique_ptr<ModelBuilder> make_gpt(const ModelConfig& model);

}  // namespace colossal
