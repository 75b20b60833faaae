// Which optimizer follows the gradient itself? Stochastic gradient descent with momentum.
#pragma once

#include "optim/optimizer.hpp"

#include <memory>

namespace colossal {

/// SGD (optimizers-and-recipes 1): d = g + wd w (L2 regularisation: the decay passes through the
/// momentum), buf = mu buf + d, w -= lr buf; with nesterov w -= lr (d + mu buf). State
/// momentum_buffer; none if momentum is 0. One pass over memory; equals torch.optim.SGD without
/// dampening. Source: Polyak 1964; Sutskever et al. 2013. Errors: step(): internal
/// "optimizer-state" if a shard lacks the state.
[[nodiscard]] std::unique_ptr<Optimizer> make_sgd(const OptimizerConfig& config);

}  // namespace colossal
