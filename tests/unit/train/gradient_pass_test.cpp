// Which runs may record their steps, and do those that may not train as ever?
#include "train/gradient_pass.hpp"

#include "support/catch.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"

#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace colossal::test {
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

/// One weight, whose loss is its product with the sum of the tokens.
class Product : public Block {
 public:
  Activation forward(const Activation& /*in*/, const Batch& batch) override {
    if (fails_in > 0 && --fails_in == 0) {
      throw std::runtime_error("refused\nby the test");
    }
    Activation out;
    out.loss_sum = at::mul(weight_.tensor(), at::sum(batch.at("tokens"))).sum();
    return out;
  }
  [[nodiscard]] std::vector<BoundarySpec> outputs(const BatchShape& /*shape*/) const override {
    return {};
  }
  [[nodiscard]] std::vector<Parameter*> parameters() override { return {&weight_}; }
  [[nodiscard]] BlockCost cost(const BatchShape& /*shape*/) const override { return {}; }

  int fails_in = 0;  // calls of forward, the failing one too; 0: never

 private:
  Parameter weight_{ParamSpec{
      .name = "weight", .shape = {1}, .padded = {1}, .layout = {}, .init = {}, .tied_to = {}}};
};

/// A run whose steps are recorded by running them: a replay leaves what is there.
class FakeRun {
 public:
  explicit FakeRun(CudaGraph wanted) : context_(tiny_gpt()) {
    Config config = tiny_gpt();
    config.train.cuda_graph = wanted;
    auto block = std::make_unique<Product>();
    block_ = block.get();
    model_.blocks.push_back(std::move(block));
    const std::vector<ChunkStore::Block> owned = {{"product", block_->parameters()}};
    const std::unique_ptr<ChunkPlanner> planner = make_planner(model_.blocks, config);
    StoreOptions options = store_options(config);
    options.lend_grads = true;  // as on a GPU
    model_.store = std::make_unique<ChunkStore>(
        owned, *planner, std::span<const std::string_view>{}, options, context_);
    model_.stage = std::make_unique<BlockStage>(model_.blocks, *model_.store, context_);
    pass_ = std::make_unique<GradientPass>(
        config,
        ParallelContext(config, kGpu),
        ChunkPlan{.chunks = {ChunkSpec{}}},
        [this](at::Device, const std::function<void()>& work) { return record(work); });
  }

  /// A step of two micro-batches; returns its gradient. The host is busy all the time.
  double step(double factor = 1) {
    Batch batch;
    batch.fields["tokens"] = at::ones({2, 3}, at::kLong);
    batch.loss.factor = factor;
    static_cast<void>(pass_->run(model_, {batch, batch}));
    pass_->observe(1, 1);
    return gradient()[0].item<double>();
  }

  [[nodiscard]] bool replayed() const { return pass_->replayed(); }
  [[nodiscard]] int num_graphs() const { return num_graphs_; }

  bool fails = false;    // in the second micro-batch of a step that is recorded
  int num_recorded = 0;  // or tried to be

 private:
  class Graph : public DeviceGraph {
   public:
    explicit Graph(int& count) : count_(count) { ++count_; }
    ~Graph() override { --count_; }
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;
    void replay() override {}

   private:
    int& count_;
  };

  [[nodiscard]] const at::Tensor& gradient() const { return model_.store->shards().front().grad; }

  std::unique_ptr<DeviceGraph> record(const std::function<void()>& work) {
    ++num_recorded;
    CHECK(gradient().storage().data() == nullptr);  // or a graph would take as much beside it
    block_->fails_in = fails ? 2 : 0;
    work();
    return std::make_unique<Graph>(num_graphs_);
  }

  ParallelContext context_;
  LiveModel model_;
  Product* block_ = nullptr;
  int num_graphs_ = 0;
  std::unique_ptr<GradientPass> pass_;
};

}  // namespace

TEST_CASE("a recorded step gives up its memory before a step of calls", "[graph]") {
  FakeRun run(CudaGraph::automatic);
  for (int step = 0; step < 5; ++step) {
    CHECK(run.step() == 12);
    CHECK(run.replayed() == (step >= 3));
  }
  CHECK(run.num_graphs() == 1);
  for (int step = 0; step < 5; ++step) {  // as after a change of the loss scale
    CHECK(run.step(0.5) == 6);
    CHECK(run.replayed() == (step >= 3));
    CHECK(run.num_graphs() == (step >= 3 ? 1 : 0));
  }
  CHECK(run.num_recorded == 2);
}

TEST_CASE("a step that cannot be recorded runs call by call, unless true was asked for",
          "[graph]") {
  FakeRun run(CudaGraph::automatic);
  run.fails = true;
  for (int step = 0; step < 8; ++step) {
    CHECK(run.step() == 12);
    CHECK_FALSE(run.replayed());
  }
  CHECK(run.num_recorded == 1);
  FakeRun asked(CudaGraph::on);
  asked.fails = true;
  for (int step = 0; step < 3; ++step) {
    CHECK(asked.step() == 12);
  }
  CHECK_THROWS_AS(asked.step(), std::runtime_error);
}

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
  CHECK(tells(reason([](Config& config, ChunkPlan&) {
                config.train.activation_checkpoint = {.mode = RecomputeMode::full,
                                                      .offload = InputOffload::cpu};
              }),
              "activation_checkpoint.offload"));
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

}  // namespace colossal::test
