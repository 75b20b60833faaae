// What will a run do and need? Computed from the configuration by the code that runs it, before any
// memory exists.
#pragma once

#include "config/config.hpp"
#include "memory/host_bytes.hpp"

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace colossal {

/// Bytes one rank needs, by category.
struct RankBytes {
  int rank = 0;
  std::int64_t parameters = 0;  ///< elements held by this rank
  std::int64_t weights = 0;
  std::int64_t grads = 0;
  std::int64_t optimizer = 0;
  std::int64_t borrowed = 0;  ///< gathered weights and whole gradients, at most at once
  std::int64_t activations = 0;
  std::int64_t buffers = 0;
  HostBytes host = {};     ///< beside the device
  std::int64_t moved = 0;  ///< of `host`: counted on the device, too, where it moves after a step
  std::int64_t nvme = 0;   ///< on disk: optimizer states
  std::optional<std::int64_t> slack =
      {};  ///< of the budget of gathered weights, as ChunkBytes::slack
  /// Of the device.
  [[nodiscard]] std::int64_t total() const {
    return weights + grads + optimizer + borrowed + activations + buffers;
  }
};

/// Everything the plan says; sums over all ranks unless a member says otherwise.
struct PlanReport {
  std::string name;
  std::int64_t world = 1, data = 1, pipeline = 1, sequence = 1, tensor = 1;
  std::int64_t global_batch = 0, micro_batch = 0, accumulation = 0;
  std::int64_t total_steps = 0;   ///< 0: unknown until the data set is read
  std::int64_t total_tokens = 0;  ///< that these steps consume; 0: unknown
  std::string steps_note;         ///< how a budget became whole steps; may be empty
  std::string batch_ramp;         ///< how the batch grows, in words; empty: it does not
  std::string schedule;  ///< the learning rate in words; empty while total_steps is unknown
  std::int64_t tokens_per_step = 0;  ///< of the full batch
  std::string unit;                  ///< what a token is called: "tokens", "rows" of an mlp
  std::int64_t parameters = 0;
  std::int64_t vocab = 0, padded_vocab = 0;      ///< 0: the model reads no tokens
  std::string model_note;                        ///< "vocab 61 -> 64", "4 features -> 3 classes"
  std::int64_t num_chunks = 0, chunk_bytes = 0;  ///< largest chunk
  double flops_per_step = 0;
  std::int64_t comm_bytes_per_step = 0;    ///< payload handed to gradient reductions by one rank
  std::int64_t gather_bytes_per_step = 0;  ///< parts of weights handed to gathers by one rank
  std::int64_t checkpoint_bytes = 0;       ///< of one
  std::int64_t saved_bytes = 0;       ///< the same; 0: the run saves none unless a signal stops it
  std::int64_t keep_last = 0;         ///< newest checkpoints that are kept
  std::string keeps;                  ///< all that is kept: "2 + every 5,000 + best"
  std::int64_t most_checkpoints = 0;  ///< at once, while a new one is written
  bool saves_aside = false;           ///< checkpoint.async
  std::int64_t device_memory = 0;     ///< bytes that the device of a rank has; 0: unknown
  std::string output_dir;             ///< where checkpoints go
  int ranks_per_node = 0;             ///< 0: all ranks on one machine
  std::vector<std::string>
      data_lines;  ///< Dataset::summary() of train and eval, if the data was opened
  std::vector<RankBytes> ranks;
  /// Bytes on disk without which a run does not begin; `deadline`: it is stopped before its job
  /// ends, and saves then.
  [[nodiscard]] std::int64_t room_bytes(bool deadline) const {
    return deadline ? checkpoint_bytes : saved_bytes;
  }
};

/// make_plan() without what ranks compute, hold and move: for who asks for steps or checkpoints
/// only. Nothing is tried. Errors: config.
[[nodiscard]] PlanReport make_outline(const Config& config, std::int64_t train_samples);

/// The plan of a resolved configuration (parallel.data known). Builds the blocks without memory.
/// `train_samples`: samples of one epoch of training, 0 if the data was not opened. Errors: config.
[[nodiscard]] PlanReport make_plan(const Config& config, std::int64_t train_samples);

/// In a process that plans and will not train: as many threads as a rank will have with all of them
/// on this machine, since products on a CPU copy operands for each.
void set_planned_threads(const Config& config);

/// Text of config-and-cli 6.1, without a final newline.
[[nodiscard]] std::string to_text(const PlanReport& plan);
/// The same as JSON (plan.json).
[[nodiscard]] std::string to_json(const PlanReport& plan);
/// Bytes of a rank as plans and estimates have them in JSON: each category of the device; "host"
/// and "nvme" with their categories in "host_parts" and "nvme_parts", which add up to them; and of
/// "host" what has "moved" to the device after the first step.
[[nodiscard]] nlohmann::ordered_json bytes_json(const RankBytes& rank);

}  // namespace colossal
