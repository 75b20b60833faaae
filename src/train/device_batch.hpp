// How does a batch come to the device that computes on it?
#pragma once

#include "config/config.hpp"
#include "core/batch.hpp"

#include <ATen/core/Tensor.h>

namespace colossal {

/// The batch with its tensors on `device`; itself on a CPU. To a GPU it is copied from pinned
/// memory, in the order of the current stream: the host goes on at once. Kernels of a GPU cannot
/// refuse an index, so tokens and labels are looked at here. Errors: data "token-range",
/// "label-range".
[[nodiscard]] Batch to_device(Batch batch, const ModelConfig& model, at::Device device);

}  // namespace colossal
