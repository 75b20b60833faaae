// How do gradients change weights? Optimizers see flat shards and step numbers; no collective, no
// rank.
#pragma once

#include "config/config.hpp"
#include "core/registry.hpp"
#include "memory/chunk_store.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {

/// What one update needs besides the shards.
struct StepInfo {
  std::int64_t step = 0;   ///< successful updates before this one (0-based)
  double lr = 0;           ///< scheduled rate
  double grad_factor = 1;  ///< gradients are multiplied by this inside the kernel: clipping, and
                           ///< one over the loss scale that they carry
  std::optional<double> momentum = {};  ///< scheduled momentum or first beta; unset: its own

  /// What takes the place of the optimizer's `own` momentum or first beta; none (0) stays none.
  [[nodiscard]] double momentum_or(double own) const {
    return own == 0 ? 0 : momentum.value_or(own);
  }
};

/// Settings of one parameter after groups and no_decay.
struct ParamGroup {
  double lr_scale = 1;
  double weight_decay = 0;
  bool adapt = true;      ///< lamb, lars: the parameter has a rate of its own
  std::uint64_t key = 0;  ///< of its name; no setting

  bool operator==(const ParamGroup& other) const noexcept {
    return lr_scale == other.lr_scale && weight_decay == other.weight_decay && adapt == other.adapt;
  }
};

/// Resolves optimizer.groups (first match wins), no_decay and no_adapt for each parameter name.
/// A pattern without effect is found by unused_patterns().
[[nodiscard]] std::vector<ParamGroup> param_groups(const OptimizerConfig& config,
                                                   std::span<const std::string> names);

/// A glob of optimizer.groups, no_decay or no_adapt that selects nothing.
struct UnusedPattern {
  std::string path;  ///< of its key: "optimizer.groups[1].match", "optimizer.no_decay"
  std::string pattern;
  bool operator==(const UnusedPattern&) const = default;
};

/// The patterns that a user wrote and that match none of the names, for groups: none that an
/// earlier group left.
[[nodiscard]] std::vector<UnusedPattern> unused_patterns(const OptimizerConfig& config,
                                                         std::span<const std::string> names);

/// Update rule over flat shards. One update is sweeps() sweeps, each over all shards, in as many
/// calls as a store likes; apply_update() does it.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Names of the states kept per master element ("exp_avg", "exp_avg_sq"); may be
  /// none.
  [[nodiscard]] virtual std::vector<std::string_view> states() const = 0;
  /// 1, or 2 where a parameter's update depends on norms of the whole parameter (lamb, lars).
  [[nodiscard]] virtual int sweeps() const = 0;
  /// What a sweep does with the states.
  [[nodiscard]] virtual StateAccess access(int sweep) const = 0;
  /// One sweep over some shards. The last one updates masters, their working copies and states in
  /// place; states of 16 bits are rounded at random, working copies to nearest. `groups` is indexed
  /// by Segment::param. `sums`, [2, parameters] fp64, is used by two sweeps only: the first adds
  /// the squares of weights (row 0) and of updates before their rate (lamb) or gradients (lars)
  /// (row 1) of what it sees, the second reads those of whole parameters. Errors: internal
  /// "optimizer-state" if a shard lacks a state, "optimizer-dtype" for an array of a foreign type.
  virtual void sweep(int index,
                     std::span<FlatShard> shards,
                     std::span<const ParamGroup> groups,
                     const StepInfo& info,
                     at::Tensor& sums) const = 0;
};

/// Table by optimizer.type: adamw, adam, sgd, lamb, lars.
[[nodiscard]] const Registry<Optimizer, const OptimizerConfig&>& optimizers();

}  // namespace colossal
