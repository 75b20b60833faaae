// How large is the gradient? Norms over everything all ranks hold, each element counted once.
#pragma once

#include "memory/chunk_store.hpp"
#include "mesh/context.hpp"

#include <span>
#include <vector>

namespace colossal {

/// Sums of squares of the gradients that are in the memory of a GPU, parameter by parameter, for
/// global_grad_norm(): on the GPU, for which nobody waits. Undefined if there are none.
[[nodiscard]] at::Tensor measure_on_gpu(std::span<const FlatShard> shards);

/// L2 norm of the reduced gradients over the whole model: local sum of squares (accumulated in
/// fp64) divided by the number of ranks that hold the same elements, summed over all stages and all
/// ranks that hold parts; non-finite if any element is. Communicates: nothing when no axis shards
/// parameters or their shards, else one all-reduce of one number. `measured`: what measure_on_gpu()
/// gave for these gradients, if it was asked.
[[nodiscard]] double global_grad_norm(std::span<const FlatShard> shards,
                                      std::span<Parameter* const> parameters,
                                      const ParallelContext& context,
                                      const at::Tensor& measured = {});

/// min(1, max_norm / (norm + 1e-6)); 1 if max_norm is 0.
[[nodiscard]] double clip_factor(double norm, double max_norm) noexcept;

}  // namespace colossal
