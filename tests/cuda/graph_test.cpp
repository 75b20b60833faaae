// Is a step that a GPU has recorded the step that it would have run, to the last bit?
#include "core/error.hpp"
#include "cuda/deterministic.hpp"
#include "cuda/fast_gpt.hpp"
#include "cuda/trained.hpp"
#include "mesh/device_graph.hpp"
#include "nn/kernels/cuda/columns.hpp"
#include "support/close.hpp"
#include "support/gpu.hpp"
#include "support/temp_dir.hpp"
#include "support/training.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace colossal::test {
namespace {

constexpr std::int64_t kSteps = 12;

using Callback = RecordingHook::Callback;

Trained run(Config config, CudaGraph graph, const Callback& after = {}) {
  config.train.steps = kSteps;
  config.train.cuda_graph = graph;
  return train(config, ParallelContext(config, kGpu), after);
}

int num_recorded(const Trained& run) {
  int count = 0;
  for (const StepReport& report : run.reports) {
    count += report.recorded ? 1 : 0;
  }
  return count;
}

/// Both ways; `least`: steps that must have been recorded.
void check_graph_of(const Config& config, int least, const Callback& after = {}) {
  const Trained calls = run(config, CudaGraph::off, after);
  CHECK(num_recorded(calls) == 0);
  const Trained graph = run(config, CudaGraph::on, after);
  CHECK(num_recorded(graph) >= least);
  check_bits(calls, graph);
}

}  // namespace

TEST_CASE("recorded work runs as often as it is asked to, on what is there then", "[cuda][graph]") {
  NEEDS_GPUS(1)
  const at::Tensor in = at::full({1000}, 1.0F, at::TensorOptions(at::kFloat).device(kGpu));
  at::Tensor out;
  const auto work = [&] { out = in.mul(2).add(1); };
  work();
  const auto graph = record_graph(kGpu, work);
  for (const float x : {3.0F, 5.0F}) {
    in.fill_(x);
    graph->replay();
    CHECK(at::equal(out, at::full_like(in, 2 * x + 1)));
  }
}

TEST_CASE("work that waits for the GPU is not recorded, and the GPU goes on", "[cuda][graph]") {
  NEEDS_GPUS(1)
  const at::Tensor x = at::full({10}, 1.0F, at::TensorOptions(at::kFloat).device(kGpu));
  try {
    const auto graph = record_graph(kGpu, [&] { static_cast<void>(x.sum().item<float>()); });
    FAIL("a wait was recorded");
  } catch (const Error& error) {
    CHECK(error.id() == "cuda-graph");
  }
  CHECK(x.add(1).sum().item<float>() == 20);
}

TEST_CASE("whatever ends a recording is told as one, but for errors of the work itself",
          "[cuda][graph]") {
  NEEDS_GPUS(1)
  const at::Tensor x = at::full({10, 4}, 1.0F, at::TensorOptions(at::kFloat).device(kGpu));
  const auto id_of = [](const std::function<void()>& work) {
    try {
      const auto graph = record_graph(kGpu, work);
    } catch (const Error& error) {
      return std::string(error.id());
    }
    return std::string();
  };
  CHECK(id_of([&] {
          try {
            static_cast<void>(x.sum().item<float>());
          } catch (const c10::Error&) {
            static_cast<void>(kernels::cuda::column_sums(x));  // what a kernel of ours says then
          }
        }) == "cuda-graph");
  CHECK(id_of([] { throw std::runtime_error("a library's own error"); }) == "cuda-graph");
  CHECK(id_of([] { fail(ErrorKind::data, "label-range", "an error of the work"); }) ==
        "label-range");
  CHECK(kernels::cuda::column_sums(x).sum().item<float>() == 40);
}

TEST_CASE("recorded steps draw the dropout of their step", "[cuda][graph]") {
  NEEDS_GPUS(1)
  const Deterministic repeats(kGpu);
  check_graph_of(in(tiny_gpt(), Precision::fp32), 9);
  check_graph_of(in(tiny_gpt(), Precision::bf16), 9);
}

TEST_CASE("recorded steps of the kernels of a large model", "[cuda][graph]") {
  NEEDS_GPUS(1)
  const Deterministic repeats(kGpu);
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    INFO(yaml_word(precision));
    check_graph_of(fast_gpt(precision), 9);
    check_graph_of(fast_gpt(precision, 384), 9);  // a head in parts
    check_graph_of(split(fast_gpt(precision), 1, 4), 9);
    Config again = fast_gpt(precision);
    again.train.activation_checkpoint.mode = RecomputeMode::full;
    check_graph_of(again, 9);
    again.train.activation_checkpoint.mode = RecomputeMode::selective;
    check_graph_of(again, 9);
  }
}

TEST_CASE("recorded steps of a classifier, and of other optimizers", "[cuda][graph]") {
  NEEDS_GPUS(1)
  const Deterministic repeats(kGpu);
  check_graph_of(in(tiny_mlp(), Precision::fp32), 9);
  for (const OptimizerType type : {OptimizerType::lamb, OptimizerType::sgd}) {
    Config config = fast_gpt(Precision::bf16);
    config.optimizer.type = type;
    config.optimizer.bias_correction =
        type == OptimizerType::lamb ? BiasCorrection::moments : BiasCorrection::on;
    check_graph_of(config, 9);
  }
}

TEST_CASE("a loss scale that moves is recorded anew when it stays", "[cuda][graph]") {
  NEEDS_GPUS(1)
  const Deterministic repeats(kGpu);
  Config config = fast_gpt(Precision::fp16);
  config.train.loss_scale = LossScaleConfig{.init = 1024, .growth_interval = 6, .hysteresis = 1};
  check_graph_of(config, 4);
}

TEST_CASE("the memory of recorded steps is free for steps that are not alike", "[cuda][graph]") {
  NEEDS_GPUS(1)
  Config config = fast_gpt(Precision::fp16);
  config.train.loss_scale = LossScaleConfig{.init = 1024, .growth_interval = 6, .hysteresis = 1};
  std::int64_t recorded_bytes = 0;
  std::int64_t later_bytes = 0;  // of the first step of calls after recorded ones
  run(config, CudaGraph::on, [&](Trainer&, const StepReport& report) {
    using c10::cuda::CUDACachingAllocator::getDeviceStats;
    c10::cuda::CUDACachingAllocator::emptyCache();
    const std::int64_t bytes = getDeviceStats(0).reserved_bytes[0].current;
    recorded_bytes = report.recorded && later_bytes == 0 ? bytes : recorded_bytes;
    later_bytes = !report.recorded && recorded_bytes > 0 && later_bytes == 0 ? bytes : later_bytes;
  });
  REQUIRE(later_bytes > 0);
  CHECK(later_bytes < recorded_bytes);
}

TEST_CASE("steps of as many labels as documents have run call by call", "[cuda][graph]") {
  NEEDS_GPUS(1)
  const TempDir folder;
  const Config config = in(tiny_blend_gpt(folder.path()), Precision::fp32);
  const Trained calls = run(config, CudaGraph::off);
  const Trained asked = run(config, CudaGraph::on);
  CHECK(num_recorded(asked) == 0);
  check_bits(calls, asked);
}

TEST_CASE("evaluations between recorded steps change nothing", "[cuda][graph]") {
  NEEDS_GPUS(1)
  const Deterministic repeats(kGpu);
  const TempDir folder;
  Config config = tiny_text_gpt(folder.path());
  config.model.dropout = 0;
  config.data.eval = {{.path = (folder.path() / "eval.txt").string()}};
  std::vector<double> losses;
  const auto evaluate = [&](Trainer& trainer, const StepReport& report) {
    if (report.step % 3 == 0) {
      losses.push_back(trainer.evaluate().loss);
    }
  };
  check_graph_of(in(config, Precision::bf16), 9, evaluate);
  REQUIRE(losses.size() == 8);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(losses[i] == losses[i + 4]);
  }
}

TEST_CASE("a checkpoint of recorded steps goes on with recorded steps", "[cuda][graph]") {
  NEEDS_GPUS(1)
  const Deterministic repeats(kGpu);
  Config config = in(tiny_gpt(), Precision::bf16);
  config.train.steps = kSteps;
  const Trained whole = run(config, CudaGraph::off);
  config.train.cuda_graph = CudaGraph::on;
  const ParallelContext gpu(config, kGpu);
  const TempDir folder;
  const auto begun = make_trainer(config, gpu, 6);
  CHECK(num_recorded(finish(*begun)) == 3);
  const auto saved = save(*begun, folder.path(), gpu.comm(data_axes()));
  const auto resumed = make_trainer(config, gpu, kSteps, saved);
  const Trained rest = finish(*resumed);
  CHECK(num_recorded(rest) == 3);
  for (std::size_t i = 0; i < rest.reports.size(); ++i) {
    CHECK(rest.reports[i].loss == whole.reports[6 + i].loss);
  }
}

TEST_CASE("what moves during a step runs call by call, whatever is asked for", "[cuda][graph]") {
  NEEDS_GPUS(1)
  Config config = fast_gpt(Precision::bf16);
  config.parallel.zero.offload = Offload::optimizer;
  config.parallel.zero.bucket_size = 4096;
  const Trained trained = run(config, CudaGraph::on);
  CHECK(num_recorded(trained) == 0);
  CHECK(trained.reports.size() == kSteps);
}

}  // namespace colossal::test
