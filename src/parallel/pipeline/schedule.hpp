// In which order does a stage compute? A schedule is a pure function that returns actions
// (sequence-and-pipeline 3.2).
#pragma once

#include "core/batch.hpp"
#include "nn/block.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace colossal {

/// One computation of a stage.
struct Action {
  enum class Op : std::uint8_t { forward, backward } op = Op::forward;
  int micro_batch = 0;
  bool operator==(const Action&) const = default;
};

/// Actions of the only stage: every micro-batch forward, then backward, in order of micro-batches
/// (1f1b with one stage).
[[nodiscard]] std::vector<Action> one_stage_schedule(int micro_batches);

/// What the engine asks of a stage. Gradients accumulate over micro-batches in order.
class StageRunner {
 public:
  virtual ~StageRunner() = default;
  /// Runs the stage's blocks on micro-batch `index` and keeps what backward needs.
  virtual Activation forward(int index, const Batch& batch) = 0;
  /// Runs the kept graph of micro-batch `index` and drops it; `last`: no later backward follows in
  /// this step.
  virtual void backward(int index, bool last) = 0;
};

/// Executes a schedule. Returns the sum of loss sums of all micro-batches, each times the weight of
/// its LossRule (undefined if the last block gives no loss).
[[nodiscard]] at::Tensor run_schedule(const std::vector<Action>& actions,
                                      const std::vector<Batch>& micro_batches,
                                      StageRunner& stage);

}  // namespace colossal
