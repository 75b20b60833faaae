// How does SGD turn the settings of a step into the factors of its loop?
#include "optim/sgd.hpp"

#include "optim/detail/flat_optimizer.hpp"

namespace colossal {
namespace {

class SgdRule {
 public:
  using Factors = detail::SgdFactors;
  static constexpr int kSweeps = 1;

  explicit SgdRule(const OptimizerConfig& config) : config_(config) {}

  [[nodiscard]] std::vector<std::string_view> states() const {
    return config_.momentum == 0 ? std::vector<std::string_view>{}
                                 : std::vector<std::string_view>{"momentum_buffer"};
  }

  static constexpr detail::Access access(int /*sweep*/) { return {}; }

  [[nodiscard]] Factors factors(const ParamGroup& group,
                                const StepInfo& info,
                                const detail::Squares& /*squares*/) const {
    return {.momentum = info.momentum_or(config_.momentum),
            .grad = info.grad_factor,
            .l2 = group.weight_decay,
            .step = info.lr * group.lr_scale,
            .nesterov = config_.nesterov};
  }

  template <class T>
  static void run(int /*sweep*/, const detail::Tile<T>& tile, const Factors& factors) {
    detail::sgd(tile.param, tile.states[0], tile.grad, tile.count, factors);
  }

  static void run_on_gpu(int /*sweep*/,
                         const detail::cuda::Sweep& shard,
                         std::span<const Factors> factors) {
    detail::cuda::sgd(shard, factors);
  }

 private:
  OptimizerConfig config_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const OptimizerConfig& config) {
  return std::make_unique<detail::FlatOptimizer<SgdRule>>(SgdRule(config));
}

}  // namespace colossal
