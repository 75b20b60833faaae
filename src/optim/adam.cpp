// How do Adam and AdamW turn the settings of a step into the factors of their common loop?
#include "optim/adam.hpp"

#include "core/error.hpp"
#include "optim/detail/bias.hpp"
#include "optim/detail/flat_optimizer.hpp"

#include <cmath>

namespace colossal {
namespace {

/// Where weight decay acts.
enum class Decay : std::uint8_t { in_gradient, decoupled };

class AdamRule {
 public:
  using Factors = detail::AdamFactors;
  static constexpr int kSweeps = 1;

  AdamRule(const OptimizerConfig& config, Decay decay) : config_(config), decay_(decay) {
    check(config_.betas.size() == 2,
          ErrorKind::config,
          "betas-count",
          "optimizer.betas needs 2 numbers for {}, it has {}",
          decay == Decay::decoupled ? "adamw" : "adam",
          config_.betas.size());
  }

  [[nodiscard]] static std::vector<std::string_view> states() { return {"exp_avg", "exp_avg_sq"}; }
  static constexpr detail::Access access(int /*sweep*/) { return {}; }

  [[nodiscard]] Factors factors(const ParamGroup& group,
                                const StepInfo& info,
                                const detail::Squares& /*squares*/) const {
    const double lr = info.lr * group.lr_scale;
    const std::int64_t t = info.step + 1;
    const double beta1 = info.momentum_or(config_.betas[0]);
    const bool corrected = config_.bias_correction == BiasCorrection::on;
    const double c1 = corrected ? detail::bias_factor(beta1, t) : 1;
    const double c2 = corrected ? detail::bias_factor(config_.betas[1], t) : 1;
    const bool decoupled = decay_ == Decay::decoupled;
    return {.beta1 = beta1,
            .beta2 = config_.betas[1],
            .grad = info.grad_factor,
            .l2 = decoupled ? 0 : group.weight_decay,
            .shrink = decoupled ? 1 - lr * group.weight_decay : 1,
            .step = lr / c1,
            .correction = config_.eps_inside_sqrt ? 1 / c2 : 1 / std::sqrt(c2),
            .eps = config_.eps.value_or(default_eps(OptimizerType::adamw)),
            .eps_inside_sqrt = config_.eps_inside_sqrt};
  }

  template <class T>
  static void run(int /*sweep*/, const detail::Tile<T>& tile, const Factors& factors) {
    detail::adam(tile.param, tile.states[0], tile.states[1], tile.grad, tile.count, factors);
  }

  static void run_on_gpu(int /*sweep*/,
                         const detail::cuda::Sweep& shard,
                         std::span<const Factors> factors) {
    detail::cuda::adam(shard, factors);
  }

  static void run_mixed(const detail::MixedArrays& arrays,
                        std::int64_t count,
                        const Factors& factors) {
    detail::adam_mixed(arrays, count, factors);
  }

 private:
  OptimizerConfig config_;
  Decay decay_;
};

std::unique_ptr<Optimizer> make(const OptimizerConfig& config, Decay decay) {
  return std::make_unique<detail::FlatOptimizer<AdamRule>>(AdamRule(config, decay));
}

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const OptimizerConfig& config) {
  return make(config, Decay::decoupled);
}

std::unique_ptr<Optimizer> make_adam(const OptimizerConfig& config) {
  return make(config, Decay::in_gradient);
}

}  // namespace colossal
