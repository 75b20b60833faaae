// Which runs may record their steps, and do those that may not train as ever?
#include "train/gradient_pass.hpp"

#include "support/catch.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"

#include <functional>
#include <string>

using namespace colossal;        // NOLINT(google-build-using-namespace): a test file
using namespace colossal::test;  // NOLINT(google-build-using-namespace)

namespace {

const at::Device kGpu(at::kCUDA, 0);  // named, never used

using Change = std::function<void(Config&, ChunkPlan&)>;

std::string reason(const Change& change, at::Device device = kGpu) {
  Config config = tiny_gpt();
  ChunkPlan plan{.chunks = {ChunkSpec{}, ChunkSpec{}}};
  change(config, plan);
  return why_not_recorded(config, ParallelContext(config, device), plan);
}

bool tells(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a run says why its steps are not recorded", "[graph]") {
  CHECK(reason([](Config&, ChunkPlan&) {}).empty());
  CHECK(
      reason([](Config& config, ChunkPlan&) { config.train.cuda_graph = CudaGraph::on; }).empty());
  CHECK(tells(reason([](Config&, ChunkPlan&) {}, at::kCPU), "GPU"));
  CHECK(tells(reason([](Config& config, ChunkPlan&) { config.train.cuda_graph = CudaGraph::off; }),
              "cuda_graph"));
  CHECK(tells(reason([](Config& config, ChunkPlan&) { config.train.gradient_accumulation = 17; }),
              "micro-batches"));
  CHECK(
      reason([](Config& config, ChunkPlan&) { config.train.gradient_accumulation = 16; }).empty());
  CHECK(tells(reason([](Config& config, ChunkPlan&) { config.logging.profiler.emplace(); }),
              "profiler"));
}

TEST_CASE("a memory policy that moves bytes during a step is not recorded", "[graph]") {
  CHECK(tells(reason([](Config&, ChunkPlan& plan) { plan.shard_grads = true; }), "memory policy"));
  CHECK(tells(reason([](Config&, ChunkPlan& plan) { plan.measured.emplace(); }), "memory policy"));
  CHECK(tells(reason([](Config&, ChunkPlan& plan) { plan.chunks[1].resident = false; }),
              "memory policy"));
  CHECK(tells(reason([](Config&, ChunkPlan& plan) { plan.chunks[0].optim_home = Tier::host; }),
              "memory policy"));
  CHECK(tells(reason([](Config&, ChunkPlan& plan) { plan.chunks[1].states_on_disk = true; }),
              "memory policy"));
}

TEST_CASE("a run on a CPU records nothing and is busy all the time", "[graph]") {
  const Config config = tiny_gpt();
  const Trained trained = train(config, ParallelContext(config));
  for (const StepReport& report : trained.reports) {
    CHECK_FALSE(report.recorded);
    CHECK(report.host_seconds > 0);
    CHECK(report.host_seconds == Approx(report.step_seconds - report.data_seconds));
  }
}
