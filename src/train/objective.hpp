// What is minimised, and when has it gone wrong? The loss of a step out of those of its
// micro-batches, and the losses before it.
#pragma once

#include "config/config.hpp"
#include "core/batch.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace colossal {

/// Labels of a step over all ranks.
struct StepLabels {
  std::int64_t labelled = 0;
  std::int64_t micro_batches = 0;  ///< with any label
};

/// What the weighted sum of the losses of all micro-batches is divided by: labels, or micro-batches
/// that have any (train.loss_reduction).
[[nodiscard]] double loss_divisor(LossReduction reduction, const StepLabels& step);

/// How a micro-batch with `labelled` labels is counted. `step_factor`: loss scale / loss_divisor().
[[nodiscard]] LossRule loss_rule(const TrainConfig& train,
                                 double step_factor,
                                 std::int64_t labelled);

/// Losses that a spike is measured by.
inline constexpr std::size_t kSpikeWindow = 100;

/// Mean of the losses; 0 of none.
[[nodiscard]] double mean_loss(std::span<const double> recent);

/// Whether `loss` exceeds `limit` times the mean of `recent`; never before kSpikeWindow losses are
/// there.
[[nodiscard]] bool is_spike(std::span<const double> recent, double loss, double limit);

/// Appends `loss`; the oldest one leaves when there are more than kSpikeWindow.
void remember_loss(std::vector<double>& recent, double loss);

}  // namespace colossal
