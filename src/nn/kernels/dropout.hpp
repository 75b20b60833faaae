// Which elements does dropout keep? Those whose keyed word is large enough: no mask is stored,
// backward draws the same words again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace colossal::kernels {

/// What decides the fate of every element of one dropout site in one step.
struct DropoutKey {
  std::uint64_t stream = 0;  ///< stream_key(seed, site)
  std::uint32_t step = 0;    ///< optimizer step
  std::uint64_t first = 0;   ///< index of the local tensor's first element in the whole activation
  double p = 0;              ///< probability of zero, in [0, 1)
  /// Batch::later: where x is on a GPU, added to `step`.
  const std::uint32_t* later = nullptr;
};

/// residual + (kept ? x / (1 - p) : 0); element i of the contiguous x is element key.first + i of
/// the whole activation. `residual` may be undefined (0). Any floating dtype; the
/// sum is rounded once.
[[nodiscard]] at::Tensor dropout(const at::Tensor& x,
                                 const at::Tensor& residual,
                                 const DropoutKey& key);

}  // namespace colossal::kernels
