// Which optimizer is the default? Adam with decoupled weight decay.
#pragma once

#include "optim/optimizer.hpp"

#include <memory>

namespace colossal {

/// AdamW (optimizers-and-recipes 1): m = b1 m + (1-b1) g, v = b2 v + (1-b2) g^2,
/// w -= lr (m/c1 / (sqrt(v/c2) + eps) + wd w) with c = 1 - b^t. States exp_avg (m), exp_avg_sq (v).
/// One pass over memory. Source: Loshchilov and Hutter 2019. Errors: internal "optimizer-state" if
/// a shard lacks a state.
[[nodiscard]] std::unique_ptr<Optimizer> make_adamw(const OptimizerConfig& config);

}  // namespace colossal
