// Which layouts of a run fit, and what does each need? Every row is the plan of a configuration
// that `plan` and `train` take with the same overrides.
#pragma once

#include "config/load.hpp"
#include "train/capacity.hpp"
#include "train/plan_report.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace colossal {

/// One layout and its plan.
struct EstimateRow {
  std::int64_t world = 1;
  std::vector<std::string> sets;  ///< what --set gives the layout beside the configuration
  std::string policy;             ///< "zero 2, optimizer on host", "gemini cpu"
  std::string recompute;          ///< "none", "selective", "full"
  std::int64_t global_batch = 0;
  std::int64_t micro_batch = 0;
  std::int64_t accumulation = 0;
  RankBytes bytes;                  ///< of the rank whose device needs most
  std::int64_t reduced_bytes = 0;   ///< of gradients that a rank hands to reductions in a step
  std::int64_t gathered_bytes = 0;  ///< of weights that a rank hands to gathers in a step
  std::optional<bool> fits = {};    ///< unset: the capacity is unknown
};

/// A layout that cannot be.
struct ImpossibleLayout {
  std::int64_t world = 1;
  std::vector<std::string> sets;
  std::string reason;  ///< the first error, with its id
};

/// All layouts of one configuration.
struct Estimate {
  std::string name;
  std::int64_t global_batch = 0;
  Capacity capacity;
  std::vector<EstimateRow> rows;  ///< by world, then by device bytes, then by host bytes
  std::vector<ImpossibleLayout> impossible;
};

/// Which layouts are asked for.
struct EstimateRequest {
  std::string config;
  LoadOptions options;               ///< overlays and overrides; its world_size is not used
  std::vector<std::int64_t> worlds;  ///< numbers of processes
  bool sweep_parallel = false;       ///< vary policy, micro-batch and recomputation, too
};

/// Plans the layouts; `base` is the configuration as it is written. A sweep keeps its global batch;
/// without one it grows with the number of processes where the configuration does not give it.
/// Errors: those of resolve_vocabulary().
[[nodiscard]] Estimate estimate(const EstimateRequest& request, const Config& base);

/// A table for people, one line a layout.
[[nodiscard]] std::string to_text(const Estimate& estimate);
/// The same and more as JSON.
[[nodiscard]] std::string to_json(const Estimate& estimate);

}  // namespace colossal
