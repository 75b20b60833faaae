// Which optimizers divide by the size of past gradients? Adam, with weight decay in the gradient
// or beside it.
#pragma once

#include "optim/optimizer.hpp"

#include <memory>

namespace colossal {

/// AdamW (optimizers-and-recipes 1): m = b1 m + (1-b1) g, v = b2 v + (1-b2) g^2,
/// w -= lr (m/c1 / (sqrt(v/c2) + eps) + wd w) with c = 1 - b^t. States exp_avg (m), exp_avg_sq (v).
/// One pass over memory; equals torch.optim.AdamW. Source: Loshchilov and Hutter 2019. Errors:
/// config "betas-count"; step(): internal "optimizer-state" if a shard lacks a state.
[[nodiscard]] std::unique_ptr<Optimizer> make_adamw(const OptimizerConfig& config);

/// Adam: weight decay is L2 regularisation, g += wd w comes before the moments, which scale it like
/// the gradient; the rest as make_adamw. Equals torch.optim.Adam. Source: Kingma and Ba 2015.
[[nodiscard]] std::unique_ptr<Optimizer> make_adam(const OptimizerConfig& config);

}  // namespace colossal
