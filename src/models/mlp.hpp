// Which model type is "mlp"? Fully connected layers that classify rows of features.
#pragma once

#include "models/zoo.hpp"

#include <memory>

namespace colossal {

/// Builder of model.type mlp; copies the section. Hidden layers of the widths model.layers with
/// relu, then a linear layer to model.out_features classes and the cross entropy. The batch has
/// "features" [B,1,in_features] and "labels" [B,1]: a row is a sequence of one token, so everything
/// that runs sequences runs it. Weights start normal with std model.init_std, biases zero.
[[nodiscard]] std::unique_ptr<ModelBuilder> make_mlp(const ModelConfig& model);

}  // namespace colossal
