// Which optimizer gives each layer of SGD its own rate? LARS, for large batches.
#pragma once

#include "optim/optimizer.hpp"

#include <memory>

namespace colossal {

/// LARS (optimizers-and-recipes 1.2): r = min(eta |w| / (|g| + wd |w| + eps), trust_clip) over each
/// parameter, 1 if one of the norms is 0; d = g + wd w; then by momentum_mode
///   scaled (the paper's)   buf = mu buf + lr r d;  w -= buf
///   unscaled               buf = mu buf + d;       w -= lr r buf
///   larc                   buf = mu buf + r d;     w -= lr buf
/// with nesterov, mu buf plus what entered buf takes the place of buf in w -= ... . Parameters in
/// no_adapt have r = 1 and no weight decay. State momentum_buffer; none if momentum is 0. Two
/// sweeps, of which the first changes nothing. Source: You, Gitman and Ginsburg 2017, "Large batch
/// training of convolutional networks". Errors: sweep(): internal "optimizer-state",
/// "optimizer-dtype".
[[nodiscard]] std::unique_ptr<Optimizer> make_lars(const OptimizerConfig& config);

}  // namespace colossal
