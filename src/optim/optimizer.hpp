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

/// A state of a parameter that every rank keeps whole and alike, because it is small.
struct WholeState {
  int param = 0;  ///< as Segment::param
  std::string_view name;
  at::Tensor values;  ///< fp64 in host memory, without the padding of the parameter
};

/// Update rule over flat shards. One update is sweeps() sweeps, each over all shards, in as many
/// calls as a store likes; apply_update() does it.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Names of the states kept per master element ("exp_avg", "exp_avg_sq"); may be
  /// none.
  [[nodiscard]] virtual std::vector<std::string_view> states() const = 0;
  /// 1; more where a parameter's update depends on sums over the whole parameter: 2 (lamb, lars)
  /// or 3 (adafactor). All but the last measure.
  [[nodiscard]] virtual int sweeps() const = 0;
  /// What a sweep does with the states.
  [[nodiscard]] virtual StateAccess access(int sweep) const = 0;
  /// One sweep over some shards. The last one updates masters, their working copies and states in
  /// place; states of 16 bits are rounded at random, working copies to nearest. `groups` is indexed
  /// by Segment::param. A sweep that measures adds to `sums`, fp64 of sum_borders(), what it sees;
  /// the next one reads there the sums of whole parameters. Errors: internal "optimizer-state" if a
  /// shard lacks a state, "optimizer-dtype" for an array of a foreign type.
  virtual void sweep(int index,
                     std::span<FlatShard> shards,
                     std::span<const ParamGroup> groups,
                     const StepInfo& info,
                     at::Tensor& sums) const = 0;
  /// Where the sums of each parameter begin in what a measuring sweep adds to, and their number at
  /// the end. By default two a parameter: the squares of its weights, and those of its updates
  /// before their rate (lamb) or of its gradients (lars).
  [[nodiscard]] virtual std::vector<std::int64_t> sum_borders(int sweep,
                                                              std::int64_t num_params) const;
  /// Told the sums of whole parameters after each measuring sweep, the same on every rank.
  virtual void take_sums(int /*sweep*/, const StepInfo& /*info*/, const at::Tensor& /*sums*/) {}
  /// Makes the whole states, before the first sweep; `parameters` is indexed by Segment::param.
  /// Does nothing for optimizers that have none.
  virtual void prepare(std::span<Parameter* const> /*parameters*/, const Mesh& /*mesh*/) {}
  /// States beside those of the shards; to be saved and loaded with them.
  [[nodiscard]] virtual std::span<const WholeState> whole_states() const { return {}; }
  /// Most bytes of a GPU that a sweep over shards there takes for a while; known after prepare().
  [[nodiscard]] virtual std::int64_t gpu_scratch_bytes() const { return 0; }
};

/// Table by optimizer.type: adamw, adam, sgd, lamb, lars, lion, adafactor.
[[nodiscard]] const Registry<Optimizer, const OptimizerConfig&>& optimizers();

}  // namespace colossal
