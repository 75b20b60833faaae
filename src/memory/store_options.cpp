// Which data types follow from precision, accumulation and the keys of ZeRO?
#include "memory/store_options.hpp"

#include "mesh/context.hpp"

#include <c10/core/ScalarType.h>

#include <iterator>

namespace colossal {
namespace {

at::ScalarType grad_dtype(const TrainConfig& train, at::ScalarType compute, at::ScalarType master) {
  const bool wide = train.grad_dtype == GradDtype::fp32 ||
                    (train.grad_dtype == GradDtype::automatic && train.gradient_accumulation > 1);
  return wide ? master : compute;
}

}  // namespace

std::int64_t max_reducing(const ChunkPlan& plan, const StoreOptions& options) {
  constexpr std::int64_t kFew = 2;
  const bool holds = plan.shard_grads || options.grad != options.reduce;
  return holds ? kFew : std::ssize(plan.chunks);
}

StoreOptions store_options(const Config& config) {
  StoreOptions options;
  options.compute = dtype(config.train.precision);
  options.master = options.compute == at::kDouble ? at::kDouble : at::kFloat;
  options.grad = grad_dtype(config.train, options.compute, options.master);
  // One rank has nothing to add: its gradients stay as they are.
  const bool wide =
      config.parallel.zero.reduce_dtype == ReduceDtype::fp32 && config.parallel.data != 1;
  options.reduce = wide ? options.master : options.grad;
  options.state = config.optimizer.state_dtype == StateDtype::bf16 ? at::kBFloat16 : options.master;
  options.overlap = config.parallel.zero.overlap;
  options.unused_is_zero = config.parallel.zero.unused_params == UnusedParams::zero;
  if (config.parallel.gemini && config.parallel.gemini->nvme) {
    const NvmeConfig& nvme = *config.parallel.gemini->nvme;
    options.nvme = NvmeOptions{.folder = nvme.path,
                               .limit = nvme.limit,
                               .backend = nvme.backend,
                               .queue_depth = nvme.queue_depth};
  }
  return options;
}

}  // namespace colossal
