// How does LARS turn the settings of a step and the norms of a layer into the factors of SGD's
// loop?
#include "optim/lars.hpp"

#include "optim/detail/flat_optimizer.hpp"

#include <cmath>

namespace colossal {
namespace {

class LarsRule {
 public:
  using Factors = detail::SgdFactors;
  static constexpr int kSweeps = 2;

  explicit LarsRule(const OptimizerConfig& config) : config_(config) {}

  [[nodiscard]] std::vector<std::string_view> states() const {
    return config_.momentum == 0 ? std::vector<std::string_view>{}
                                 : std::vector<std::string_view>{"momentum_buffer"};
  }

  static constexpr detail::Access access(int sweep) {
    return sweep == 0 ? detail::Access{.reads_states = false,
                                       .writes_states = false,
                                       .writes_param = false}
                      : detail::Access{};
  }

  [[nodiscard]] Factors factors(const ParamGroup& group,
                                const StepInfo& info,
                                const detail::Squares& squares) const {
    const double lr = info.lr * group.lr_scale;
    const double own = rate(group, squares, info.grad_factor);
    const MomentumMode mode = config_.momentum_mode;
    return {.momentum = info.momentum_or(config_.momentum),
            .grad = info.grad_factor,
            .l2 = group.adapt ? group.weight_decay : 0,
            .into = mode == MomentumMode::scaled ? lr * own
                    : mode == MomentumMode::larc ? own
                                                 : 1,
            .step = mode == MomentumMode::scaled ? 1
                    : mode == MomentumMode::larc ? lr
                                                 : lr * own,
            .nesterov = config_.nesterov};
  }

  template <class T>
  static void run(int sweep, const detail::Tile<T>& tile, const Factors& factors) {
    if (sweep > 0) {
      detail::sgd(tile.param, tile.states[0], tile.grad, tile.count, factors);
    }
  }

  static void run_on_gpu(int sweep,
                         const detail::cuda::Sweep& shard,
                         std::span<const Factors> factors) {
    sweep == 0 ? detail::cuda::squares(shard) : detail::cuda::sgd(shard, factors);
  }

  /// Squares of the gradient before it is multiplied by grad_factor.
  template <class T>
  static detail::Squares measure(const detail::Tile<T>& tile, const Factors& /*factors*/) {
    return {.weights = detail::sum_of_squares(tile.param, tile.count),
            .update = detail::sum_of_squares(tile.grad, tile.count)};
  }

 private:
  [[nodiscard]] double rate(const ParamGroup& group,
                            const detail::Squares& squares,
                            double grad_factor) const {
    const double weights = std::sqrt(squares.weights);
    const double gradient = std::sqrt(squares.update) * grad_factor;
    if (!group.adapt || weights == 0 || gradient == 0) {
      return 1;
    }
    const double eps = config_.eps.value_or(default_eps(OptimizerType::lars));
    const double own =
        config_.trust_coefficient * weights / (gradient + group.weight_decay * weights + eps);
    return config_.trust_clip ? std::min(own, *config_.trust_clip) : own;
  }

  OptimizerConfig config_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lars(const OptimizerConfig& config) {
  return std::make_unique<detail::FlatOptimizer<LarsRule>>(LarsRule(config));
}

}  // namespace colossal
