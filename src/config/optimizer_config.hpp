// What can a run be told about its optimizer and learning rate? Sections `optimizer` and
// `scheduler`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace colossal {
/// Words of these sections.
enum class OptimizerType : std::uint8_t { adamw, adam, sgd, lamb, lars, lion, adafactor };
enum class BiasCorrection : std::uint8_t { on, off, moments, lr, none };
enum class MomentumMode : std::uint8_t { scaled, unscaled, larc };
enum class LrScaling : std::uint8_t { none, linear, sqrt };
enum class StateDtype : std::uint8_t { fp32, bf16 };
enum class DecayShape : std::uint8_t { linear, cosine, sqrt, exponential };
enum class SchedulerType : std::uint8_t {
  constant,
  cosine,
  linear,
  polynomial,
  step,
  multistep,
  inverse_sqrt,
  wsd,
  flat_cosine,
  one_cycle
};

/// YAML section `optimizer.groups[i]`: parameters with settings of their own.
struct OptimizerGroup {
  std::string match;  ///< glob on parameter names
  double lr_scale = 1;
  std::optional<double> weight_decay = {};  ///< unset: optimizer.weight_decay
};

/// YAML section `optimizer`.
struct OptimizerConfig {
  OptimizerType type = OptimizerType::adamw;
  double lr = 0;
  double weight_decay = 0;
  std::vector<std::string> no_decay = {"*.bias", "*norm*"};
  bool no_decay_given =
      false;  ///< not a key: the user wrote no_decay, so an unused pattern is an error
  std::vector<double> betas = {0.9, 0.999};  ///< lion: derived [0.9, 0.99]
  std::optional<double> eps = {};            ///< unset: default_eps(type)
  bool eps_inside_sqrt = false;
  BiasCorrection bias_correction = BiasCorrection::on;  ///< lamb: moments, lr or none
  double momentum = 0.9;                                ///< sgd and lars
  bool nesterov = false;                                ///< sgd and lars
  MomentumMode momentum_mode = MomentumMode::scaled;    ///< lars only
  double trust_coefficient = 0.001;                     ///< lars only
  std::optional<double> trust_clip = {};                ///< lamb and lars; unset: no bound
  std::vector<std::string> no_adapt = {};               ///< lamb and lars; derived: no_decay
  bool scale_parameter = true;                          ///< adafactor only
  bool relative_step = false;                           ///< adafactor only
  LrScaling lr_scaling = LrScaling::none;
  std::optional<std::int64_t> base_batch_size = {};
  StateDtype state_dtype = StateDtype::fp32;
  std::vector<OptimizerGroup> groups = {};
};

/// YAML section `scheduler`.
struct SchedulerConfig {
  SchedulerType type = SchedulerType::constant;
  std::optional<std::int64_t> warmup_steps = {};  ///< at most one of steps and ratio
  std::optional<double> warmup_ratio = {};
  double warmup_start = 0;
  std::optional<std::int64_t> decay_steps = {};  ///< unset: total - warm-up
  double min_lr_ratio = 0;
  double power = 1;                            ///< polynomial only
  std::optional<std::int64_t> step_size = {};  ///< step only
  std::vector<std::int64_t> milestones = {};   ///< multistep only; strictly increasing
  double gamma = 0.1;                          ///< step and multistep
  std::optional<double> stable_ratio = {};     ///< wsd 0.8, flat_cosine 0.72
  DecayShape decay_shape = DecayShape::sqrt;   ///< wsd only
};

}  // namespace colossal
