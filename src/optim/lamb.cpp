// How does LAMB turn the settings of a step and the norms of a layer into the factors of its loops?
#include "optim/lamb.hpp"

#include "core/error.hpp"
#include "optim/detail/bias.hpp"
#include "optim/detail/flat_optimizer.hpp"

#include <cmath>

namespace colossal {
namespace {

class LambRule {
 public:
  using Factors = detail::LambFactors;
  static constexpr int kSweeps = 2;

  explicit LambRule(const OptimizerConfig& config) : config_(config) {
    check(config_.betas.size() == 2,
          ErrorKind::config,
          "betas-count",
          "optimizer.betas needs 2 numbers for lamb, it has {}",
          config_.betas.size());
  }

  [[nodiscard]] static std::vector<std::string_view> states() { return {"exp_avg", "exp_avg_sq"}; }

  /// The second sweep has all it needs in weights and moments.
  static constexpr detail::Access access(int sweep) {
    return sweep == 0 ? detail::Access{.writes_param = false}
                      : detail::Access{.grad = false, .writes_states = false};
  }

  [[nodiscard]] Factors factors(const ParamGroup& group,
                                const StepInfo& info,
                                const detail::Squares& squares) const {
    const std::int64_t t = info.step + 1;
    const double beta1 = info.momentum_or(config_.betas[0]);
    const double c1 = detail::bias_factor(beta1, t);
    const double c2 = detail::bias_factor(config_.betas[1], t);
    const bool by_rate = config_.bias_correction == BiasCorrection::lr;
    const bool in_moments = config_.bias_correction == BiasCorrection::moments ||
                            config_.bias_correction == BiasCorrection::on;
    const double second = in_moments ? c2 : 1;
    return {.beta1 = beta1,
            .beta2 = config_.betas[1],
            .grad = info.grad_factor,
            .first = in_moments ? 1 / c1 : 1,
            .correction = config_.eps_inside_sqrt ? 1 / second : 1 / std::sqrt(second),
            .eps = config_.eps.value_or(default_eps(OptimizerType::lamb)),
            .decay = group.weight_decay,
            .step = info.lr * group.lr_scale * (by_rate ? std::sqrt(c2) / c1 : 1) *
                    rate(group, squares),
            .eps_inside_sqrt = config_.eps_inside_sqrt};
  }

  template <class T>
  static void run(int sweep, const detail::Tile<T>& tile, const Factors& factors) {
    if (sweep == 0) {
      detail::lamb_moments(tile.states[0], tile.states[1], tile.grad, tile.count, factors);
    } else {
      detail::lamb_apply(tile.param, tile.states[0], tile.states[1], tile.count, factors);
    }
  }

  static void run_on_gpu(int sweep,
                         const detail::cuda::Sweep& shard,
                         std::span<const Factors> factors) {
    sweep == 0 ? detail::cuda::lamb_moments(shard, factors)
               : detail::cuda::lamb_apply(shard, factors);
  }

  template <class T>
  static detail::Squares measure(const detail::Tile<T>& tile, const Factors& factors) {
    return detail::lamb_squares(tile.param, tile.states[0], tile.states[1], tile.count, factors);
  }

 private:
  /// The trust ratio of a layer.
  [[nodiscard]] double rate(const ParamGroup& group, const detail::Squares& squares) const {
    const bool unknown = squares.weights == 0 || squares.update == 0;
    const double own =
        !group.adapt || unknown ? 1 : std::sqrt(squares.weights) / std::sqrt(squares.update);
    return group.adapt && config_.trust_clip ? std::min(own, *config_.trust_clip) : own;
  }

  OptimizerConfig config_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lamb(const OptimizerConfig& config) {
  return std::make_unique<detail::FlatOptimizer<LambRule>>(LambRule(config));
}

}  // namespace colossal
