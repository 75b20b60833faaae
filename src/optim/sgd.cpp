// How does SGD turn the settings of a step into the factors of its loop?
#include "optim/sgd.hpp"

#include "optim/detail/element_wise.hpp"
#include "optim/detail/flat_kernels.hpp"

namespace colossal {
namespace {

class SgdRule {
 public:
  using Factors = detail::SgdFactors;

  explicit SgdRule(const OptimizerConfig& config) : config_(config) {}

  [[nodiscard]] std::vector<std::string_view> states() const {
    return config_.momentum == 0 ? std::vector<std::string_view>{}
                                 : std::vector<std::string_view>{"momentum_buffer"};
  }

  [[nodiscard]] Factors factors(const ParamGroup& group, const StepInfo& info) const {
    return {.momentum = info.momentum_or(config_.momentum),
            .grad = info.grad_factor,
            .l2 = group.weight_decay,
            .step = info.lr * group.lr_scale,
            .nesterov = config_.nesterov};
  }

  template <class T>
  static void run(T* param,
                  const std::array<T*, 2>& states,
                  const T* grad,
                  std::int64_t count,
                  const Factors& factors) {
    detail::sgd(param, states[0], grad, count, factors);
  }

 private:
  OptimizerConfig config_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const OptimizerConfig& config) {
  return std::make_unique<detail::ElementWise<SgdRule>>(SgdRule(config));
}

}  // namespace colossal
