// Does every optimizer and schedule go on exactly after a restart, and does a changed setting act
// on the first resumed step?
#include "support/catch.hpp"
#include "support/close.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>

#include <string>
#include <vector>

namespace colossal::test {
namespace {

/// Ten steps of one block, so that every schedule can be run twice.
Config small(OptimizerType optimizer, SchedulerType scheduler) {
  Config config = tiny_gpt();
  config.model.num_layers = 1;
  config.train.steps = 10;
  config.train.global_batch_size = config.train.micro_batch_size = 4;
  config.optimizer.type = optimizer;
  config.optimizer.nesterov = true;
  config.scheduler = {};
  config.scheduler.type = scheduler;
  if (scheduler != SchedulerType::one_cycle) {
    config.scheduler.warmup_steps = 4;  // the restart after step 2 lies inside
  }
  config.scheduler.step_size = 5;
  config.scheduler.milestones = {5, 8};
  config.scheduler.stable_ratio = 0.5;
  return config;
}

void check_restart(const Config& config, std::int64_t stop) {
  const TempDir folder;
  const ParallelContext context(config);
  const Trained whole = train(config, context);
  const std::unique_ptr<Trainer> first = make_trainer(config, context, stop);
  first->run();
  const std::unique_ptr<Trainer> second =
      make_trainer(config, context, 10, save(*first, folder.path(), Comm()));
  const Trained rest = finish(*second);
  REQUIRE(rest.reports.size() == static_cast<std::size_t>(10 - stop));
  for (std::size_t i = 0; i < rest.reports.size(); ++i) {
    const StepReport& expected = whole.reports[static_cast<std::size_t>(stop) + i];
    CHECK(rest.reports[i].lr == expected.lr);
    CHECK(rest.reports[i].loss == expected.loss);
  }
  for (const auto& [name, tensor] : whole.tensors) {
    INFO(name);
    CHECK(at::equal(tensor, rest.tensors.at(name)));
  }
}

constexpr int kNumSchedules = static_cast<int>(SchedulerType::one_cycle) + 1;

}  // namespace

TEST_CASE("every schedule goes on bit-equal, also from inside its warm-up", "[resume]") {
  for (int type = 0; type < kNumSchedules; ++type) {
    INFO("schedule " << type);
    check_restart(small(OptimizerType::sgd, static_cast<SchedulerType>(type)), 2);
  }
}

TEST_CASE("every optimizer goes on bit-equal after a restart", "[resume]") {
  for (const OptimizerType type : {OptimizerType::adamw,
                                   OptimizerType::adam,
                                   OptimizerType::sgd,
                                   OptimizerType::lamb,
                                   OptimizerType::lars,
                                   OptimizerType::lion,
                                   OptimizerType::adafactor}) {
    INFO("optimizer " << static_cast<int>(type));
    Config config = small(type, SchedulerType::one_cycle);
    config.optimizer.no_adapt = config.optimizer.no_decay;
    if (type == OptimizerType::lamb) {
      config.optimizer.bias_correction = BiasCorrection::moments;
      config.optimizer.trust_clip = 10;
    }
    check_restart(config, 6);
  }
}

TEST_CASE("layer-wise rates go on bit-equal from inside the warm-up", "[resume]") {
  for (const OptimizerType type : {OptimizerType::lamb, OptimizerType::lars}) {
    INFO("optimizer " << static_cast<int>(type));
    Config config = small(type, SchedulerType::cosine);
    config.optimizer.no_adapt = config.optimizer.no_decay;
    config.optimizer.bias_correction = BiasCorrection::lr;
    check_restart(config, 2);
  }
}

TEST_CASE("a changed weight decay acts on the first resumed step", "[resume]") {
  const TempDir folder;
  Config config = small(OptimizerType::sgd, SchedulerType::constant);
  config.optimizer.momentum = 0;
  config.optimizer.nesterov = false;
  config.optimizer.weight_decay = 0;
  config.train.clip_grad_norm = 0;
  const ParallelContext context(config);
  const std::unique_ptr<Trainer> first = make_trainer(config, context, 5);
  first->run();
  const Tensors before = copy_records(*first);
  const std::filesystem::path at = save(*first, folder.path(), Comm());
  const Trained kept = finish(*make_trainer(config, context, 6, at));
  config.optimizer.weight_decay = 0.5;
  const Trained changed = finish(*make_trainer(config, context, 6, at));
  // One step of plain SGD differs by lr * weight_decay * weights, for decayed parameters only.
  const double pull = config.optimizer.lr * 0.5;
  for (const auto& [name, tensor] : before) {
    if (name.starts_with("model/")) {
      const bool decayed = !name.ends_with(".bias") && name.find("norm") == std::string::npos;
      const at::Tensor expected = kept.tensors.at(name) - tensor * (decayed ? pull : 0.0);
      require_close(expected, changed.tensors.at(name), 1e-12, name);
    }
  }
}

}  // namespace colossal::test
