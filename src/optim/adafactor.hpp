// Which optimizer keeps sums of rows and columns instead of a moment per element? Adafactor.
#pragma once

#include "optim/optimizer.hpp"

#include <memory>

namespace colossal {

/// Adafactor (optimizers-and-recipes 1.3). With t updates, b = 1 - t^-0.8 and s = g^2 + 1e-30, a
/// matrix (the last two dims; leading ones are a batch) has R = b R + (1-b) mean of s over columns,
/// C = b C + (1-b) mean over rows, V = R C / mean(R); a vector V = b V + (1-b) s. Then
/// U = g / sqrt(V) / max(1, RMS(g / sqrt(V))), a = lr max(1e-3, RMS(w)) with scale_parameter, else
/// lr, where relative_step bounds lr by 1 / sqrt(t); w -= a (U + wd w). Whole states
/// exp_avg_sq_row (R), exp_avg_sq_col (C) and exp_avg_sq (V of vectors): fp64, the same on every
/// rank, whatever the layout and shards; none per element, and no momentum. Three sweeps, of which
/// two measure. Runs by tensor operations wherever a shard is, on a CPU in pieces whose order does
/// not depend on threads. Source: Shazeer and Stern 2018; equals transformers' Adafactor with
/// beta1=None, and torch.optim.Adafactor with relative_step and without decay. Errors: sweep():
/// internal "optimizer-state" without prepare().
[[nodiscard]] std::unique_ptr<Optimizer> make_adafactor(const OptimizerConfig& config);

}  // namespace colossal
