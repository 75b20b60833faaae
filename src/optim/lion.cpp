// How does Lion turn the settings of a step into the factors of its loop?
#include "optim/lion.hpp"

#include "core/error.hpp"
#include "optim/detail/flat_optimizer.hpp"

#include <ATen/ops/from_blob.h>

namespace colossal {
namespace {

class LionRule {
 public:
  using Factors = detail::LionFactors;
  static constexpr int kSweeps = 1;

  explicit LionRule(const OptimizerConfig& config) : config_(config) {
    check(config_.betas.size() == 2,
          ErrorKind::config,
          "betas-count",
          "optimizer.betas needs 2 numbers for lion, it has {}",
          config_.betas.size());
  }

  [[nodiscard]] static std::vector<std::string_view> states() { return {"exp_avg"}; }
  static constexpr detail::Access access(int /*sweep*/) { return {}; }

  [[nodiscard]] Factors factors(const ParamGroup& group,
                                const StepInfo& info,
                                const detail::Squares& /*squares*/) const {
    const double lr = info.lr * group.lr_scale;
    return {.beta1 = info.momentum_or(config_.betas[0]),
            .beta2 = config_.betas[1],
            .grad = info.grad_factor,
            .shrink = 1 - lr * group.weight_decay,
            .step = lr};
  }

  template <class T>
  static void run(int /*sweep*/, const detail::Tile<T>& tile, const Factors& factors) {
    detail::lion(tile.param, tile.states[0], tile.grad, tile.count, factors);
  }

  static void run_on_gpu(int /*sweep*/,
                         const detail::cuda::Sweep& shard,
                         std::span<const Factors> factors) {
    detail::lion_on_tensors(shard, factors, at::kCUDA);
  }

 private:
  OptimizerConfig config_;
};

}  // namespace

namespace detail {

void lion_on_tensors(const cuda::Sweep& sweep,
                     std::span<const LionFactors> factors,
                     at::DeviceType device) {
  for (std::size_t i = 0; i < sweep.slices.size(); ++i) {
    const cuda::Slice& slice = sweep.slices[i];
    const auto part = [&](const Array& array) {
      const auto bytes = static_cast<std::int64_t>(c10::elementSize(array.dtype));
      return at::from_blob(array.at<char>(slice.at * bytes),
                           {slice.count},
                           at::TensorOptions(array.dtype).device(device));
    };
    const LionFactors& own = factors[i];
    const at::Tensor param = part(sweep.arrays.master);
    const at::Tensor moment = part(sweep.arrays.states[0]);
    const at::Tensor grad = part(sweep.arrays.grad).to(param.scalar_type()).mul(own.grad);
    const at::Tensor sign =
        moment.mul(own.beta1).add_(grad.mul(1 - own.beta1)).sign_().mul_(own.step);
    moment.mul_(own.beta2).add_(grad.mul(1 - own.beta2));
    param.mul_(own.shrink).sub_(sign);
    if (sweep.arrays.working.data != nullptr) {
      part(sweep.arrays.working).copy_(param);
    }
  }
}

}  // namespace detail

std::unique_ptr<Optimizer> make_lion(const OptimizerConfig& config) {
  return std::make_unique<detail::FlatOptimizer<LionRule>>(LionRule(config));
}

}  // namespace colossal
