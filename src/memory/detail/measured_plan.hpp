// What does the first step's measurement decide? How much gathered weights may take at each moment,
// and which optimizer states and homes of weights fit on the device.
#pragma once

#include "memory/chunk_plan.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace colossal::detail {

/// Device memory that is not the store's, by acquisition of a step: the peak between it and the
/// next, less what the store held then (zero-gemini-elixir 11).
class NonModelTrace {
 public:
  /// A step begins.
  void begin();
  /// The store is about to change what it holds, which was `store_bytes` since the last call.
  void observe(std::int64_t store_bytes);
  /// A block is acquired: its period begins.
  void next();
  /// Peaks by acquisition; the step is over.
  [[nodiscard]] std::vector<std::int64_t> finish();

 private:
  std::int64_t current_ = 0;  ///< of this period; what came before the first belongs to it
  std::vector<std::int64_t> peaks_;
};

/// What a decision is made from; equal on all ranks.
struct MeasuredInput {
  std::int64_t device_bytes = 0;  ///< size of the device
  std::int64_t home_bytes = 0;    ///< of the store on the device, gathered weights apart
  MeasuredBudget shares;
  std::vector<std::int64_t> non_model;        ///< by acquisition: the largest of all ranks
  std::vector<std::int64_t> needs;            ///< by acquisition: gathered weights the block needs
  std::vector<std::int64_t> optimizer_bytes;  ///< by chunk: what moves if its optimizer moves here
  std::vector<std::int64_t> weight_bytes;     ///< by chunk: what else moves with the weights' home
};

/// What follows from a measured step.
struct MeasuredDecision {
  std::vector<std::int64_t> budgets;  ///< by acquisition: bytes gathered weights may take
  std::vector<int> to_device;         ///< chunks whose optimizer moves to the device
  std::vector<int> homes_to_device;   ///< of these: those whose weights have their home there, too
  std::int64_t slack = 0;  ///< bytes free beside what the block needs, at the tightest acquisition;
                           ///< below 0: they are missing, and nothing is decided
  std::size_t tightest = 0;  ///< that acquisition
};

/// Bytes of the device that may be used.
[[nodiscard]] std::int64_t usable_bytes(const MeasuredInput& input);

/// The margin that is free at every moment beside what blocks need is spent first on optimizers, in
/// reverse chunk order: chunks whose gradients arrive last, whose update could not hide behind
/// backward. The homes of their weights follow in the same order, from all that is left: they spare
/// the way to the host and back each step. What is left then is the cache.
[[nodiscard]] MeasuredDecision decide(const MeasuredInput& input);

/// The plan after the decision. `masters_are_weights`: weights have no home beside their master, so
/// that it moves with the optimizer. A rank that holds all of a chunk whose home is on the device
/// has no reason to gather it: it is resident.
void follow(const MeasuredDecision& decision,
            bool masters_are_weights,
            const Mesh& mesh,
            ChunkPlan& plan);

}  // namespace colossal::detail
