// Which optimizer gives each layer of Adam its own rate? LAMB, for large batches.
#pragma once

#include "optim/optimizer.hpp"

#include <memory>

namespace colossal {

/// LAMB (optimizers-and-recipes 1.1): m and v as adamw's; u = m^/(sqrt(v^) + eps) + wd w;
/// w -= lr r u with r = min(|w| / |u|, trust_clip) over each parameter, 1 if one of the norms is 0
/// or the parameter is in no_adapt. bias_correction says what m^ and v^ are: moments (m/c1, v/c2),
/// lr (m, v, and lr times sqrt(c2)/c1) or none. States exp_avg (m), exp_avg_sq (v). Two sweeps: the
/// second computes u again from the states, so nothing is stored in between. Source: You et al.
/// 2020, "Large batch optimization for deep learning". Errors: config "betas-count"; sweep():
/// internal "optimizer-state", "optimizer-dtype".
[[nodiscard]] std::unique_ptr<Optimizer> make_lamb(const OptimizerConfig& config);

}  // namespace colossal
