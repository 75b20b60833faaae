// What is minimised, and when has it gone wrong? Pure functions: all ranks find the same.
#include "train/objective.hpp"

#include <numeric>

namespace colossal {

double loss_divisor(LossReduction reduction, const StepLabels& step) {
  return static_cast<double>(reduction == LossReduction::token ? step.labelled
                                                               : step.micro_batches);
}

LossRule loss_rule(const TrainConfig& train, double step_factor, std::int64_t labelled) {
  const bool means = train.loss_reduction == LossReduction::micro_batch && labelled > 0;
  const double weight = means ? 1 / static_cast<double>(labelled) : 1;
  return {step_factor * weight, train.label_smoothing, weight};
}

double mean_loss(std::span<const double> recent) {
  return recent.empty() ? 0
                        : std::accumulate(recent.begin(), recent.end(), 0.0) /
                              static_cast<double>(recent.size());
}

bool is_spike(std::span<const double> recent, double loss, double limit) {
  return recent.size() >= kSpikeWindow && loss > limit * mean_loss(recent);
}

void remember_loss(std::vector<double>& recent, double loss) {
  recent.push_back(loss);
  if (recent.size() > kSpikeWindow) {
    recent.erase(recent.begin());
  }
}

}  // namespace colossal
