// When is a step recorded? When enough steps of its shape have run, so that every kernel is chosen
// and every buffer is there.
#include "train/gradient_pass.hpp"

#include "core/log.hpp"
#include "core/trace.hpp"
#include "optim/norms.hpp"
#include "parallel/pipeline/schedule.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <utility>

namespace colossal {
namespace {

constexpr int kWarmUp = 3;           // steps call by call before one is recorded
constexpr double kHostShare = 0.15;  // of a step: above it the host may be what a GPU waits for
constexpr int kVaried = 20;          // steps that differ before that is told
constexpr std::int64_t kMostMicroBatches = 16;  // a longer step hides what its start costs

bool alike(const Batch& a, const Batch& b) {
  return a.first_row == b.first_row && a.training == b.training && a.loss == b.loss &&
         std::ranges::equal(a.fields, b.fields, [](const auto& x, const auto& y) {
           return x.first == y.first && x.second.sizes() == y.second.sizes() &&
                  x.second.scalar_type() == y.second.scalar_type();
         });
}

bool alike(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  return std::ranges::equal(a, b, [](const Batch& x, const Batch& y) { return alike(x, y); });
}

/// Waits for the reductions that backward has started.
void finish_gradients(ChunkStore& store) {
  const trace::Scope scope(trace::Phase::reduce);
  store.finish_gradients();
}

StepSums compute(LiveModel& model, const std::vector<Batch>& micro_batches) {
  model.store->begin_gradients();
  model.stage->begin_step(micro_batches.front().loss.factor.value_or(1));
  const at::Tensor loss = run_schedule(
      one_stage_schedule(static_cast<int>(micro_batches.size())), micro_batches, *model.stage);
  finish_gradients(*model.store);
  return {loss, measure_on_gpu(model.store->shards())};
}

/// Whether weights, gradients and optimizer states stay where they are during a step.
bool stays(const ChunkPlan& plan) {
  return !plan.shard_grads && !plan.measured &&
         std::ranges::all_of(plan.chunks, [](const ChunkSpec& chunk) {
           return chunk.resident && chunk.optim_home == Tier::device && !chunk.states_on_disk;
         });
}

}  // namespace

std::string why_not_recorded(const Config& config,
                             const ParallelContext& context,
                             const ChunkPlan& plan) {
  if (config.train.cuda_graph == CudaGraph::off) {
    return "train.cuda_graph is false";
  }
  if (!context.device().is_cuda()) {
    return "only a GPU can record work";
  }
  if (context.mesh().world_size() > 1) {
    return "several processes talk to each other during a step";
  }
  if (!stays(plan)) {
    return "the memory policy moves weights, gradients or optimizer states during a step";
  }
  if (config.train.activation_checkpoint.offload != InputOffload::none) {
    return "train.activation_checkpoint.offload moves inputs of blocks during a step";
  }
  if (config.train.gradient_accumulation > kMostMicroBatches) {
    return "a step has too many micro-batches";
  }
  if (config.logging.profiler) {
    return "logging.profiler records single calls";
  }
  return {};
}

/// A step as it was recorded.
struct GradientPass::Recorded {
  std::vector<Batch> batches;  // whose arrays it reads
  at::Tensor later;            // updates since then, int32 on the device
  StepSums sums;               // which it writes
  std::unique_ptr<DeviceGraph> graph;
};

GradientPass::GradientPass(const Config& config,
                           const ParallelContext& context,
                           const ChunkPlan& plan,
                           Recorder recorder)
    : recorder_(std::move(recorder)),
      device_(context.device()),
      wanted_(config.train.cuda_graph),
      why_not_(why_not_recorded(config, context, plan)) {
  if (wanted_ == CudaGraph::on && !why_not_.empty()) {
    log::warn("[cuda-graph] train.cuda_graph is true, but {}: steps run call by call", why_not_);
  } else if (wanted_ == CudaGraph::automatic && !why_not_.empty() && device_.is_cuda()) {
    log::info("[cuda-graph] steps run call by call: {}", why_not_);
  }
}

GradientPass::~GradientPass() = default;

StepSums GradientPass::run(LiveModel& model, const std::vector<Batch>& micro_batches) {
  replayed_ = false;
  if (!why_not_.empty()) {
    return compute(model, micro_batches);
  }
  if (recorded_ == nullptr || !alike(recorded_->batches, micro_batches)) {
    recorded_.reset();  // its memory is what a step of calls needs
    const bool again = alike(last_, micro_batches);
    num_alike_ = again ? num_alike_ + 1 : 1;
    num_varied_ = again ? 0 : num_varied_ + 1;
    if (num_varied_ == kVaried) {
      log::info(
          "[cuda-graph] steps run call by call: their shape or their number of labelled tokens "
          "changes from step to step");
    }
    host_share_ = again ? host_share_ : std::nullopt;
    last_ = micro_batches;
    if (num_alike_ <= kWarmUp || !pays() || !try_record(model, micro_batches)) {
      return compute(model, micro_batches);
    }
  }
  replayed_ = true;
  return replay(micro_batches);
}

void GradientPass::observe(double step_seconds, double host_seconds) {
  if (why_not_.empty() && !replayed_ && num_alike_ > 1) {  // the first one chooses kernels
    const double share = host_seconds / step_seconds;
    host_share_ = std::min(share, host_share_.value_or(share));
    if (num_alike_ == kWarmUp && !pays()) {
      log::info("[cuda-graph] steps run call by call: the host is busy for {:.0f} % of a step only",
                100 * *host_share_);
    }
  }
}

bool GradientPass::pays() const {
  return wanted_ == CudaGraph::on || host_share_.value_or(0) > kHostShare;
}

/// False: this step and all others run call by call.
bool GradientPass::try_record(LiveModel& model, const std::vector<Batch>& micro_batches) {
  try {
    record(model, micro_batches);
    return true;
  } catch (const std::exception& error) {
    if (wanted_ == CudaGraph::on) {
      throw;
    }
    const std::string_view text = error.what();
    why_not_ = text.substr(0, text.find('\n'));  // a backtrace follows
  }
  log::warn("[cuda-graph] steps run call by call: {}", why_not_);
  model.store->abandon_gradients();
  return false;
}

void GradientPass::record(LiveModel& model, const std::vector<Batch>& micro_batches) {
  const at::Device device = micro_batches.front().fields.begin()->second.device();
  auto made = std::make_unique<Recorded>();
  made->later = at::zeros({1}, at::TensorOptions(at::kInt).device(device));
  for (const Batch& batch : micro_batches) {
    Batch& own = made->batches.emplace_back(batch);
    own.later = reinterpret_cast<const std::uint32_t*>(made->later.const_data_ptr<std::int32_t>());
    for (auto& [name, tensor] : own.fields) {
      tensor = tensor.clone();
    }
  }
  // Else what was lent to the last step stays beside the graph's own memory: a graph takes nothing
  // from what others gave back, and gives nothing to them.
  model.store->drop_gradients();
  made->graph = recorder_(device_, [&] { made->sums = compute(model, made->batches); });
  recorded_ = std::move(made);
  log::info("[cuda-graph] forward and backward are one call from step {} on",
            micro_batches.front().step + 1);
}

StepSums GradientPass::replay(const std::vector<Batch>& micro_batches) {
  for (std::size_t i = 0; i < micro_batches.size(); ++i) {
    for (const auto& [name, tensor] : micro_batches[i].fields) {
      recorded_->batches[i].at(name).copy_(tensor, /*non_blocking=*/true);
    }
  }
  const std::int64_t later = micro_batches.front().step - recorded_->batches.front().step;
  recorded_->later.fill_(static_cast<std::int32_t>(static_cast<std::uint32_t>(later)));
  recorded_->graph->replay();
  return recorded_->sums;
}

}  // namespace colossal
