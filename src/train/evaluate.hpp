// What does one pass over an evaluation set tell?
#pragma once

#include "config/config.hpp"
#include "data/dataset.hpp"
#include "mesh/context.hpp"
#include "train/stage.hpp"

#include <cstdint>
#include <optional>

namespace colossal {

/// Facts of one evaluation, equal on all ranks but for the seconds.
struct EvalReport {
  std::int64_t step = 0;
  double loss = 0;
  std::optional<double> accuracy = {};  ///< share classified right; only of a classifier
  std::int64_t tokens = 0;
  std::int64_t samples = 0;
  std::int64_t set_samples = 0;  ///< in the whole set; eval.max_batches may leave some out
  std::int64_t num_batches = 0;
  double seconds = 0;
};

/// Visits each sample of `data` once (eval.max_batches may end it sooner), spread over the data
/// axes; every rank gets the same report. One that takes more than three seconds says how far it is
/// every ten. `step`: updates behind the weights. Collective over the
/// data axes. Errors: data "no-labels" if no token has a label.
[[nodiscard]] EvalReport evaluate(BlockStage& stage,
                                  const Dataset& data,
                                  const Config& config,
                                  const ParallelContext& context,
                                  std::int64_t step);

}  // namespace colossal
