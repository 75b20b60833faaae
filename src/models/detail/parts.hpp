// What do the blocks of all models share? Lists of parameters, and their bytes.
#pragma once

#include "nn/block.hpp"
#include "nn/layers.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace colossal::detail {

/// Normal initial values of this standard deviation.
inline InitSpec normal(double std) {
  return {InitSpec::Kind::normal, std};
}

/// Parameters of all these layers, in order; null layers have none.
template <class... Layers>
std::vector<Parameter*> parameters_of(const Layers&... layers) {
  std::vector<Parameter*> all;
  const auto append = [&](const auto& layer) {
    if (layer != nullptr) {
      const std::vector<Parameter*> some = layer->parameters();
      all.insert(all.end(), some.begin(), some.end());
    }
  };
  (append(layers), ...);
  return all;
}

/// Bytes of parameters that are stored here (a tied one is stored at its owner).
inline std::int64_t stored_bytes(const std::vector<Parameter*>& parameters,
                                 std::int64_t item_bytes) {
  std::int64_t bytes = 0;
  for (const Parameter* const parameter : parameters) {
    const ParamSpec& spec = parameter->spec();
    bytes += spec.tied_to.empty() ? numel(spec.padded) * item_bytes : 0;
  }
  return bytes;
}

/// Bytes of one element of a boundary tensor.
inline std::int64_t item_bytes_of(const BoundarySpec& boundary) {
  return static_cast<std::int64_t>(c10::elementSize(boundary.dtype));
}

/// Bytes of one statistic of such a tensor: fp32 at least.
inline std::int64_t wide_bytes_of(const BoundarySpec& boundary) {
  constexpr std::int64_t kSingle = 4;
  return std::max(item_bytes_of(boundary), kSingle);
}

/// The one tensor "hidden" that most blocks hand on.
inline Activation hidden_only(at::Tensor x_bsh) {
  Activation out;
  out.set("hidden", std::move(x_bsh));
  return out;
}

}  // namespace colossal::detail
