// Does an evaluation need weights and evaluation data only, and does it tell what training told?
#include "train/evaluate.hpp"

#include "core/error.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"
#include "train/model.hpp"

#include <algorithm>

namespace colossal::test {

namespace fs = std::filesystem;

namespace {

/// A trained model on text, and its checkpoint without optimizer state.
struct WeightsOnly {
  explicit WeightsOnly(const fs::path& folder) : config(tiny_text_gpt(folder)), context(config) {
    const std::unique_ptr<Trainer> trainer = make_trainer(config, context, 3);
    trainer->run();
    expected = trainer->evaluate();
    std::vector<TensorRecord> records = trainer->records();
    std::erase_if(records, [](const auto& record) { return !record.name.starts_with("model/"); });
    save_checkpoint(folder / "weights", trainer->state(), records, Comm(), {});
    checkpoint = find_checkpoint(folder / "weights");
  }

  Config config;
  ParallelContext context;
  EvalReport expected;
  fs::path checkpoint;
};

}  // namespace

TEST_CASE("weights and evaluation data are enough, and tell the same to the last bit",
          "[evaluate]") {
  const TempDir folder;
  const WeightsOnly trained(folder.path());
  fs::remove(folder.path() / "train.txt");
  const auto data = open_split(trained.config, Split::eval);
  const LiveModel model = load_model(trained.config, trained.context, trained.checkpoint, Comm());
  for (const FlatShard& shard : model.store->shards()) {
    CHECK(shard.state.empty());
  }
  const EvalReport report = evaluate(*model.stage, *data, trained.config, trained.context, 3);
  CHECK(report.loss == trained.expected.loss);
  CHECK(report.tokens == trained.expected.tokens);
  CHECK(report.samples == data->size());
  CHECK(report.num_batches == trained.expected.num_batches);
  CHECK(report.step == 3);
}

TEST_CASE("eval.max_batches ends an evaluation sooner", "[evaluate]") {
  const TempDir folder;
  WeightsOnly trained(folder.path());
  trained.config.eval.micro_batch_size = 4;
  trained.config.eval.max_batches = 2;
  const auto data = open_split(trained.config, Split::eval);
  const LiveModel model = load_model(trained.config, trained.context, trained.checkpoint, Comm());
  const EvalReport report = evaluate(*model.stage, *data, trained.config, trained.context, 3);
  CHECK(report.num_batches == 2);
  CHECK(report.samples == 8);
}

TEST_CASE("weights of another model are refused", "[evaluate]") {
  const TempDir folder;
  WeightsOnly trained(folder.path());
  trained.config.model.num_layers = 3;
  try {
    static_cast<void>(load_model(trained.config, trained.context, trained.checkpoint, Comm()));
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.id() == "checkpoint-missing-tensor");
    CHECK(std::string(error.what()).find("model/blocks.2.") != std::string::npos);
    CHECK(std::string(error.what()).find("optim/") == std::string::npos);
  }
}

}  // namespace colossal::test
