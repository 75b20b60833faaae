// How is an evaluation set visited? Batch by batch without graphs, the sums reduced once at the
// end.
#include "train/evaluate.hpp"

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/pace.hpp"
#include "data/loader.hpp"
#include "train/device_batch.hpp"
#include "train/stopwatch.hpp"

#include <ATen/ops/ne.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <utility>

namespace colossal {
namespace {

constexpr double kSecondsToFirstLine = 3;
constexpr double kSecondsBetweenLines = 10;

}  // namespace

EvalReport evaluate(BlockStage& stage,
                    const Dataset& data,
                    const Config& config,
                    const ParallelContext& context,
                    std::int64_t step) {
  const Stopwatch watch;
  const Mesh& mesh = context.mesh();
  const EvalPlan plan(data.size(),
                      config.eval.micro_batch_size,
                      {mesh.index(data_axes()), mesh.size(data_axes())},
                      config.eval.max_batches.value_or(0));
  at::Tensor sums = at::zeros({3}, at::kDouble);  // exact for counts
  auto* const loss = sums.mutable_data_ptr<double>();
  auto* const tokens = loss + 1;
  auto* const correct = loss + 2;
  bool classifies = false;
  Pace pace(kSecondsToFirstLine, kSecondsBetweenLines);
  for (std::int64_t k = 0; k < plan.num_batches(); ++k) {
    if (pace.due(watch.seconds())) {
      log::console(
          fmt::format("eval  batch {}/{}, {:.0f} s", k, plan.num_batches(), watch.seconds()));
    }
    Batch batch = data.read(plan.indices(k));
    batch.training = false;
    batch.step = step;
    *tokens += at::ne(batch.at("labels"), kIgnoreLabel).sum().item<double>();
    const Activation out =
        stage.evaluate(to_device(std::move(batch), config.model, context.device()));
    classifies = out.num_correct.defined();
    *loss += out.loss_sum.item<double>();
    *correct += classifies ? out.num_correct.item<double>() : 0;
  }
  context.comm(data_axes()).all_reduce(sums).wait();
  check(*tokens > 0, ErrorKind::data, "no-labels", "the evaluation set has no labelled token");
  return {.step = step,
          .loss = *loss / *tokens,
          .accuracy = classifies ? std::optional(*correct / *tokens) : std::nullopt,
          .tokens = static_cast<std::int64_t>(*tokens),
          .samples = plan.covered(),
          .set_samples = data.size(),
          .num_batches = plan.num_batches(),
          .seconds = watch.seconds()};
}

}  // namespace colossal
