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
  double grad_factor = 1;  ///< gradients are multiplied by this inside the kernel (clipping)
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
  bool operator==(const ParamGroup&) const = default;
};

/// Resolves optimizer.groups (first match wins) and no_decay for each parameter name.
/// A pattern without effect is found by unused_patterns().
[[nodiscard]] std::vector<ParamGroup> param_groups(const OptimizerConfig& config,
                                                   std::span<const std::string> names);

/// A glob of optimizer.groups or optimizer.no_decay that selects nothing.
struct UnusedPattern {
  std::string path;  ///< of its key: "optimizer.groups[1].match", "optimizer.no_decay"
  std::string pattern;
  bool operator==(const UnusedPattern&) const = default;
};

/// The patterns that a user wrote and that match none of the names, for groups: none that an
/// earlier group left.
[[nodiscard]] std::vector<UnusedPattern> unused_patterns(const OptimizerConfig& config,
                                                         std::span<const std::string> names);

/// Update rule over flat shards.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Names of the states kept per master element ("exp_avg", "exp_avg_sq"); may be
  /// none.
  [[nodiscard]] virtual std::vector<std::string_view> states() const = 0;
  /// Updates masters and states in place. `groups` is indexed by Segment::param.
  virtual void step(std::span<FlatShard> shards,
                    std::span<const ParamGroup> groups,
                    const StepInfo& info) = 0;
};

/// Table by optimizer.type: adamw, adam, sgd.
[[nodiscard]] const Registry<Optimizer, const OptimizerConfig&>& optimizers();

}  // namespace colossal
