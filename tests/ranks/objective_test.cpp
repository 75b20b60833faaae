// Do all ranks begin with the same weights, take the same growing steps, and stop at the same
// spike?
#include "train/objective.hpp"

#include "checkpoint/safetensors.hpp"
#include "config/load.hpp"
#include "core/error.hpp"
#include "models/exchange.hpp"
#include "support/close.hpp"
#include "support/policies.hpp"
#include "support/ranks.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"
#include "train/init_weights.hpp"

#include <ATen/ops/equal.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

using namespace colossal;        // NOLINT(google-build-using-namespace): a test file
using namespace colossal::test;  // NOLINT(google-build-using-namespace)

namespace {

namespace fs = std::filesystem;

/// The folder of rank 0, for all.
fs::path shared(const TempDir& mine, const Comm& comm) {
  return comm.gather_text(mine.path().string()).front();
}

void write_file(Trainer& trainer, const ModelConfig& model, const fs::path& file) {
  std::vector<ParamSpec> specs;
  for (const Parameter* const parameter : trainer.parts().store->parameters()) {
    if (parameter->spec().tied_to.empty()) {
      specs.push_back(parameter->spec());
    }
  }
  const std::vector<ExchangedTensor> tensors = exchanged_tensors(model, specs);
  std::vector<SafeTensor> entries;
  for (const ExchangedTensor& tensor : tensors) {
    SafeTensor& entry = entries.emplace_back();
    entry.name = tensor.name;
    entry.dtype = at::kDouble;
    entry.shape = tensor.shape;
  }
  const Tensors values = copy_records(trainer);
  SafetensorsWriter writer(file, entries);
  for (const ExchangedTensor& tensor : tensors) {
    const at::Tensor& whole = values.at("model/" + tensor.parameter);
    writer.write(tensor.transposed ? whole.t().contiguous() : whole);
  }
  writer.commit();
}

/// Weights of two or more steps from another seed, as root/donor/step-0000000N and as
/// root/model.safetensors. Returns them on rank 0, which makes them for all.
Tensors make_donor(Config config, const fs::path& root, const Comm& comm, std::int64_t steps = 2) {
  Tensors weights;
  if (comm.rank() == 0) {
    config.run.seed = 99;
    const ParallelContext alone(config);
    const std::unique_ptr<Trainer> trainer = make_trainer(config, alone, steps);
    trainer->run();
    RunState state = trainer->state();
    state.config_yaml = to_yaml(config);
    save_checkpoint(root / "donor", state, trainer->records(), Comm(), {});
    write_file(*trainer, config.model, root / "model.safetensors");
    weights = copy_records(*trainer);
  }
  comm.barrier();
  return weights;
}

/// A new run that begins with the weights of config.model.init_from; `begin` sees them.
Trained train_from(const Config& config,
                   const ParallelContext& context,
                   const Comm& world,
                   const std::function<void(const Tensors&)>& begin = {}) {
  Trainer trainer(build(config, context, {}), {});
  const fs::path from = settle_initial_weights(config, {});
  load_initial_weights(from, config, context, trainer.records(), world);
  trainer.parts().store->publish_masters();
  const Tensors found = copy_records(trainer);
  if (begin) {
    begin(found);
  }
  return finish(trainer);
}

void check_same(const Trained& expected, const Trained& run) {
  REQUIRE(run.reports.size() == expected.reports.size());
  for (std::size_t i = 0; i < run.reports.size(); ++i) {
    require_relative(expected.reports[i].loss, run.reports[i].loss, 1e-9, "loss");
    CHECK(run.reports[i].data_hash == expected.reports[i].data_hash);
    CHECK(run.reports[i].samples == expected.reports[i].samples);
  }
  for (const auto& [name, tensor] : expected.tensors) {
    require_close(tensor, run.tensors.at(name), 1e-9, name);
  }
}

void check_initial_weights_under_policies(RankContext& ctx) {
  const SizedDevice device;
  const TempDir mine;
  const fs::path root = shared(mine, ctx.comm());
  Config config = tiny_gpt();
  config.train.steps = 3;
  const Tensors weights = make_donor(config, root, ctx.comm());
  for (const fs::path& from : {root / "donor", root / "model.safetensors"}) {
    config.model.init_from = from.string();
    const Trained reference =
        ctx.rank() == 0 ? train_from(config, ParallelContext(config), Comm()) : Trained{};
    for (const Policy& policy : policies()) {
      INFO(policy.name << " from " << from.filename());
      const Config spread = with(split(config, ctx.size(), 1), policy);
      const ParallelContext context(spread, ctx.world());
      const Trained run = train_from(spread, context, ctx.comm(), [&](const Tensors& found) {
        for (const auto& [name, tensor] : weights) {
          INFO(name);
          CHECK((!name.starts_with("model/") || at::equal(tensor, found.at(name))));
        }
      });
      if (ctx.rank() == 0) {
        check_same(reference, run);
      }
    }
  }
  ctx.comm().barrier();  // the folder is rank 0's and goes with it
}

/// Nine steps, five of them on the way from 4 to 16 samples, in micro-batches of two.
Config ramped(std::int64_t processes) {
  Config config = tiny_gpt();
  config.train.batch_ramp = BatchRampConfig{.start = 4, .increment = 4, .samples = 30};
  config.train.steps = 9;
  config.data.num_samples = 50;  // epochs end inside of steps
  return split(config, processes, 8 / processes);
}

/// Who trains.
struct Crew {
  const Config& config;
  const ParallelContext& context;
  Comm world;
};

/// The steps up to `stop` after the checkpoint `from`; appends them to `all`. Returns a checkpoint.
fs::path leg(
    const Crew& crew, std::int64_t stop, const fs::path& from, const fs::path& root, Trained& all) {
  const std::unique_ptr<Trainer> trainer = make_trainer(crew.config, crew.context, stop, from);
  const Trained part = finish(*trainer);
  all.reports.insert(all.reports.end(), part.reports.begin(), part.reports.end());
  all.tensors = part.tensors;
  return save(*trainer, root, crew.world);
}

}  // namespace

RANKS_TEST_CASE("two processes begin with the weights of one under every memory policy",
                "[objective]",
                2) {
  check_initial_weights_under_policies(ctx);
}

RANKS_TEST_CASE(
    "all ranks begin with the weights that were checked, though newer ones came meanwhile",
    "[objective]",
    2) {
  const TempDir mine;
  const fs::path root = shared(mine, ctx.comm());
  Config config = tiny_gpt();
  config.train.steps = 3;
  const Tensors weights = make_donor(config, root, ctx.comm());
  config.model.init_from = (root / "donor").string();
  const fs::path from = settle_initial_weights(config, {});
  CHECK(from == root / "donor" / "step-00000002");
  ctx.comm().barrier();
  make_donor(config, root, ctx.comm(), 3);
  const Config spread = split(config, ctx.size(), 1);
  const ParallelContext context(spread, ctx.world());
  Trainer trainer(build(spread, context, {}), {});
  load_initial_weights(from, spread, context, trainer.records(), ctx.comm());
  const Tensors found = copy_records(trainer);
  for (const auto& [name, tensor] : weights) {  // of rank 0
    INFO(name);
    CHECK((!name.starts_with("model/") || at::equal(tensor, found.at(name))));
  }
  ctx.comm().barrier();
}

RANKS_TEST_CASE("a ramp goes on from 2 processes to 1 and back", "[objective]", 2) {
  const TempDir mine;
  const fs::path root = shared(mine, ctx.comm());
  const Config alone = ramped(1);
  const Config together = ramped(2);
  const ParallelContext one(alone);
  const ParallelContext two(together, ctx.world());
  Trained all;
  const Crew both{together, two, ctx.comm()};
  fs::path at = leg(both, 2, {}, root, all);
  if (ctx.rank() == 0) {
    at = leg({alone, one, Comm()}, 4, at, root, all);
  }
  at = ctx.comm().gather_text(at.string()).front();
  leg(both, 9, at, root, all);
  if (ctx.rank() == 0) {
    const Trained whole = train(alone, one);
    CHECK(whole.reports[3].samples == 8);
    CHECK(whole.reports[8].samples == 16);
    check_same(whole, all);
  }
  ctx.comm().barrier();
}

RANKS_TEST_CASE("the mean of micro-batches is that of all ranks", "[objective]", 2) {
  const TempDir folder;
  Config config = tiny_tokens_gpt(folder.path());
  config.data.packing = Packing::pad;
  config.model.init_std = 0.3;  // losses differ from row to row
  config.train.global_batch_size = 8;
  config.train.loss_reduction = LossReduction::micro_batch;
  const Config whole = split(config, 1, 4);
  const Trained reference = ctx.rank() == 0 ? train(whole, ParallelContext(whole)) : Trained{};
  const Config spread = split(config, 2, 2);  // the same micro-batches, two a rank
  const Trained run = train(spread, ParallelContext(spread, ctx.world()));
  if (ctx.rank() == 0) {
    check_same(reference, run);
    config.train.loss_reduction = LossReduction::token;
    const Config token = split(config, 1, 4);
    const double loss = train(token, ParallelContext(token)).reports[0].loss;
    CHECK(std::abs(loss - run.reports[0].loss) > 1e-4);
  }
}

RANKS_TEST_CASE("a spike of one rank stops all ranks before the same update", "[objective]", 2) {
  Config config = tiny_gpt();
  config.model.num_layers = 1;
  config.train.global_batch_size = 2;
  config.train.steps = 106;
  config.train.loss_spike = 3;
  config.optimizer.lr = 1e-3;
  const Config spread = split(config, 2, 1);
  const ParallelContext context(spread, ctx.world());
  Trainer trainer(build(spread, context, {}), {});
  std::vector<StepReport> reports;
  trainer.add_hook(
      std::make_unique<RecordingHook>(reports, [&](Trainer& running, const StepReport& report) {
        if (report.step == 103 && ctx.rank() == 1) {
          running.parts().store->shards()[0].master.mul_(50);
        }
      }));
  try {
    trainer.run();
    FAIL("went on");
  } catch (const Error& error) {
    CHECK(error.id() == "loss-spike");
    CHECK(trainer.state().step == 103);
  }
}
