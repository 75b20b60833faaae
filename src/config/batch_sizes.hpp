// How many samples does each step of a run take? train.global_batch_size, or fewer while
// train.batch_ramp lasts.
#pragma once

#include "config/config.hpp"

#include <cstdint>
#include <optional>

namespace colossal {

/// a / b, rounded up; both are positive.
[[nodiscard]] std::int64_t ceil_div(std::int64_t a, std::int64_t b) noexcept;

/// Sizes of steps, a pure function of the samples consumed before: whoever resumes at a position
/// goes on with the same steps. A ramp cuts its samples into as many equal parts as it has sizes
/// below the full one; a step has the size of the part in which it begins. Source: Megatron-LM's
/// --rampup-batch-size.
class BatchSizes {
 public:
  /// Steps of `full` samples, after `ramp`. A ramp that does not lead up to `full` is none.
  explicit BatchSizes(std::int64_t full, const std::optional<BatchRampConfig>& ramp = {});
  /// Those of a configuration whose global batch size is known.
  explicit BatchSizes(const TrainConfig& train)
      : BatchSizes(train.global_batch_size, train.batch_ramp) {}

  /// Samples of the step that begins after `consumed` samples.
  [[nodiscard]] std::int64_t at(std::int64_t consumed) const noexcept;
  /// Steps from the start until `samples` or more are consumed.
  [[nodiscard]] std::int64_t steps_to(std::int64_t samples) const noexcept;
  /// Samples that the first `steps` steps consume.
  [[nodiscard]] std::int64_t samples_after(std::int64_t steps) const noexcept;
  /// Steps below the full size at the start of a run.
  [[nodiscard]] std::int64_t ramp_steps() const noexcept;

 private:
  /// Neighbouring steps of one size.
  struct Stretch {
    std::int64_t batch = 0;
    std::int64_t steps = 0;
  };

  /// The steps of one size that begin after `consumed` samples.
  [[nodiscard]] Stretch stretch_at(std::int64_t consumed) const noexcept;

  std::int64_t full_;
  BatchRampConfig ramp_;
  std::int64_t parts_ = 0;  ///< sizes below the full one; 0: no ramp
};

}  // namespace colossal
