// Is a resumed run the unbroken run, to the last bit?
#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"

#include <ATen/ops/equal.h>

namespace colossal::test {
namespace {

void check_resume_anywhere(const Config& config) {
  const TempDir folder;
  const ParallelContext context(config);
  const Trained whole = train(config, context, [&](Trainer& trainer, const StepReport&) {
    save(trainer, folder.path(), Comm());
  });
  for (std::int64_t stop = 1; stop < 6; ++stop) {
    INFO("resumed after step " << stop);
    const std::filesystem::path at =
        list_checkpoints(folder.path())[static_cast<std::size_t>(stop) - 1].path;
    const std::unique_ptr<Trainer> trainer = make_trainer(config, context, 6, at);
    const Trained rest = finish(*trainer);
    REQUIRE(rest.reports.size() == static_cast<std::size_t>(6 - stop));
    for (std::size_t i = 0; i < rest.reports.size(); ++i) {
      const StepReport& expected = whole.reports[static_cast<std::size_t>(stop) + i];
      CHECK(rest.reports[i].loss == expected.loss);
      CHECK(rest.reports[i].grad_norm == expected.grad_norm);
      CHECK(rest.reports[i].lr == expected.lr);
      CHECK(rest.reports[i].data_hash == expected.data_hash);
      CHECK(rest.reports[i].epoch == expected.epoch);
    }
    for (const auto& [name, tensor] : whole.tensors) {
      INFO(name);
      CHECK(at::equal(tensor, rest.tensors.at(name)));
    }
  }
}

}  // namespace

TEST_CASE("resume in fp64 is bit-equal after every step", "[resume]") {
  check_resume_anywhere(tiny_gpt());
}

TEST_CASE("resume in fp32 with accumulation is bit-equal after every step", "[resume]") {
  Config config = split(tiny_gpt(), 1, 4);
  config.train.precision = Precision::fp32;
  check_resume_anywhere(config);
}

TEST_CASE("another micro-batch size resumes at the same sample", "[resume]") {
  const TempDir folder;
  const Config config = tiny_gpt();
  const ParallelContext context(config);
  const Trained whole = train(config, context);
  const std::unique_ptr<Trainer> first = make_trainer(config, context, 3);
  first->run();
  const Config other = split(config, 1, 8);
  const std::unique_ptr<Trainer> second =
      make_trainer(other, context, 6, save(*first, folder.path(), Comm()));
  const Trained rest = finish(*second);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(rest.reports[i].data_hash == whole.reports[3 + i].data_hash);
    CHECK(rest.reports[i].loss == Approx(whole.reports[3 + i].loss).epsilon(1e-9));
  }
}

TEST_CASE("changed hyperparameters act on the first resumed step", "[resume]") {
  const TempDir folder;
  Config config = tiny_gpt();
  const ParallelContext context(config);
  const std::unique_ptr<Trainer> first = make_trainer(config, context, 3);
  first->run();
  const std::filesystem::path at = save(*first, folder.path(), Comm());
  config.optimizer.lr = 1e-3;
  config.scheduler.type = SchedulerType::constant;
  config.scheduler.warmup_steps.reset();
  const std::unique_ptr<Trainer> second = make_trainer(config, context, 4, at);
  CHECK(finish(*second).reports.front().lr == 1e-3);
}

}  // namespace colossal::test
