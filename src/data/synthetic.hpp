// What can be trained on without any file? Sequences of a noisy rule that a model can learn.
#pragma once

#include "data/dataset.hpp"

#include <memory>

namespace colossal {

/// Dataset `synthetic`: after token v comes rule(v), a permutation keyed by the seed, with
/// probability 0.9, else any token. Content = f(seed, split, sample index). Train holds
/// data.num_samples samples, eval a tenth of them (at least one), under the same rule. Errors: data
/// "vocab-too-small" below 2 tokens.
[[nodiscard]] std::unique_ptr<Dataset> make_synthetic_dataset(const DatasetRequest& request);

}  // namespace colossal
