// How are the gradients of a step computed: call by call, or by work that a GPU has recorded?
#pragma once

#include "config/config.hpp"
#include "core/batch.hpp"
#include "mesh/context.hpp"
#include "mesh/device_graph.hpp"
#include "train/model.hpp"

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace colossal {

/// What forward and backward of a step leave beside the gradients of the store.
struct StepSums {
  at::Tensor loss;          ///< sum over this rank's labelled tokens
  at::Tensor grad_squares;  ///< of measure_on_gpu()
};

/// Why the steps of such a run cannot be recorded, as people read it; empty if they can.
[[nodiscard]] std::string why_not_recorded(const Config& config,
                                           const ParallelContext& context,
                                           const ChunkPlan& plan);

/// Computes the gradients of steps. Where `train.cuda_graph` and the run allow it, steps of equal
/// shape are recorded after some that ran call by call, and from then on are one call: the host has
/// nothing to do meanwhile, and no gap lies between kernels. Bits are the same either way. A step
/// of another shape or factor of the loss runs call by call, and is recorded if such steps go on;
/// the memory of the steps recorded before is free from then on. A step that cannot be recorded is
/// an error only if `train.cuda_graph` is true.
class GradientPass {
 public:
  /// record_graph(), or what a test does instead.
  using Recorder =
      std::function<std::unique_ptr<DeviceGraph>(at::Device, const std::function<void()>&)>;

  /// `plan`: of the store that run() is given. Warns if `train.cuda_graph` is true in vain.
  GradientPass(const Config& config,
               const ParallelContext& context,
               const ChunkPlan& plan,
               Recorder recorder = record_graph);
  ~GradientPass();

  /// Forward and backward of all micro-batches, which are on the device; gradients are then summed
  /// over all ranks. What it returns is valid until the next call.
  StepSums run(LiveModel& model, const std::vector<Batch>& micro_batches);
  /// Told after each step: how long it took, and how long of that the host was busy.
  void observe(double step_seconds, double host_seconds);
  /// Whether the last run() was one call.
  [[nodiscard]] bool replayed() const noexcept { return replayed_; }

 private:
  struct Recorded;

  void record(LiveModel& model, const std::vector<Batch>& micro_batches);
  bool try_record(LiveModel& model, const std::vector<Batch>& micro_batches);
  StepSums replay(const std::vector<Batch>& micro_batches);
  [[nodiscard]] bool pays() const;

  Recorder recorder_;
  at::Device device_;
  CudaGraph wanted_;
  std::string why_not_;
  std::vector<Batch> last_;           // of the last call
  int num_alike_ = 0;                 // calls in a row that were as the last one
  int num_varied_ = 0;                // calls in a row that were not
  std::optional<double> host_share_;  // least of these, the first one left out
  bool replayed_ = false;
  std::unique_ptr<Recorded> recorded_;  // null: nothing
};

}  // namespace colossal
