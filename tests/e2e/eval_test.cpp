// Does `eval` tell the same as evaluation during training, on any number of processes?
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/detail/manifest.hpp"
#include "checkpoint/detail/rank_file.hpp"
#include "e2e/program.hpp"

#include <cmath>
#include <csignal>
#include <string_view>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

/// Writes a checkpoint of one rank again without its optimizer state.
void drop_optimizer(const fs::path& checkpoint) {
  const colossal::detail::Manifest manifest = colossal::detail::read_manifest(checkpoint);
  colossal::detail::BoxReader reader(checkpoint, manifest);
  std::vector<colossal::TensorRecord> weights;
  for (const colossal::detail::StoredTensor& tensor : manifest.tensors) {
    if (tensor.name.starts_with("model/")) {
      const colossal::Shape zeros(tensor.global.size(), 0);
      const at::Tensor values = reader.read(tensor, tensor.boxes.front()).view(tensor.global);
      weights.push_back({tensor.name, tensor.global, values, {{zeros, zeros, tensor.global}}});
    }
  }
  save_checkpoint(checkpoint.parent_path(), manifest.state, weights, colossal::Comm(), {});
}

}  // namespace

TEST_CASE("eval equals the evaluation at the end of training", "[eval]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  run_expecting(0, train_tiny(run_dir, {"--nproc", "2"}));
  const Json trained = records(run_dir, "eval").at(12);
  for (const char* processes : {"1", "2", "3"}) {
    const Outcome outcome =
        run_expecting(0, {"eval", "--checkpoint", run_dir.string(), "--nproc", processes});
    const Json result = last_line(outcome);
    CHECK(count(outcome.out, "\n") == 1);
    CHECK(result.at("step") == 12);
    CHECK(result.at("samples") == trained.at("samples"));
    CHECK(result.at("tokens") == trained.at("tokens"));
    const auto loss = result.at("loss").get<double>();
    CHECK(std::abs(loss - trained.at("loss").get<double>()) <= 1e-6 * loss);
  }
}

TEST_CASE("eval takes one checkpoint, overrides and another configuration", "[eval]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  run_expecting(0, train_tiny(run_dir));
  const std::string older = (run_dir / "checkpoints" / "step-00000006").string();
  CHECK(last_line(run_expecting(0, {"eval", "--checkpoint", older})).at("step") == 6);
  const Json limited = last_line(run_expecting(
      0, {"eval", "--checkpoint", older, "--set", "eval.max_batches=1", "--set", "run.seed=3"}));
  CHECK(limited.at("batches") == 1);
  run_expecting(0, {"eval", "--checkpoint", older, "--config", data_file("tiny.yaml")});
}

TEST_CASE("eval on fewer processes than logging.ranks names", "[eval]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  run_expecting(0, train_tiny(run_dir, {"--nproc", "2", "--set", "logging.ranks=[0, 1]"}));
  const fs::path config = folder.path() / "same.yaml";
  write_file(config, "extends: " + data_file("tiny.yaml") + "\nlogging: {ranks: [0, 1]}\n");
  for (const Arguments& more : {Arguments{}, Arguments{"--config", config.string()}}) {
    const Outcome outcome =
        run_expecting(0, joined({{"eval", "--checkpoint", run_dir.string()}, more}));
    CHECK(last_line(outcome).at("step") == 12);
    CHECK(count(outcome.err, "warning") == 0);
  }
}

TEST_CASE("eval tells how much of the set it has seen", "[eval]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  run_expecting(0, train_tiny(run_dir));
  for (const char* processes : {"1", "2"}) {
    Arguments words = {"eval",
                       "--checkpoint",
                       run_dir.string(),
                       "--nproc",
                       processes,
                       "--set",
                       "data.num_samples=200",
                       "--set",
                       "eval.micro_batch_size=3"};
    const Json whole = last_line(run_expecting(0, words));
    CHECK(whole.at("samples") == 20);  // a tenth of the samples, no multiple of the batch
    CHECK(whole.at("set_samples") == 20);
    words.insert(words.end(), {"--set", "eval.max_batches=1"});
    const Json part = last_line(run_expecting(0, words));
    CHECK(part.at("samples") == 3 * std::stoi(processes));
    CHECK(part.at("set_samples") == 20);
  }
}

TEST_CASE("an overlay counts for eval, with the stored and with a given configuration", "[eval]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  run_expecting(0, train_tiny(run_dir));
  const fs::path over = folder.path() / "over.yaml";
  write_file(over, "eval: {max_batches: 2, micro_batch_size: 1}\n");
  for (const Arguments& config : {Arguments{}, Arguments{"--config", data_file("tiny.yaml")}}) {
    for (const char* processes : {"1", "2"}) {
      Arguments words = {"eval", "--checkpoint", run_dir.string(), "--nproc", processes};
      words.insert(words.end(), config.begin(), config.end());
      words.insert(words.end(), {"--config-overlay", over.string()});
      CHECK(last_line(run_expecting(0, words)).at("batches") == 2);
      words.insert(words.end(), {"--set", "eval.max_batches=1"});
      CHECK(last_line(run_expecting(0, words)).at("batches") == 1);
    }
  }
  write_file(over, "eval: {batches: 2}\n");
  const Outcome wrong = run_expecting(
      3, {"eval", "--checkpoint", run_dir.string(), "--config-overlay", over.string()});
  CHECK(count(wrong.err, "over.yaml:1:8: error") == 1);
}

TEST_CASE("eval does not repeat what concerns training, and names the user's own options",
          "[eval]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  const Outcome trained = run_expecting(
      0, train_tiny(run_dir, {"--set", "eval.every_steps=1000", "--set", "optimizer.lr=2"}));
  CHECK(count(trained.err, "[never-runs]") == 1);
  CHECK(count(trained.err, "[lr-too-large]") == 1);
  const fs::path config = folder.path() / "again.yaml";
  write_file(config,
             "extends: " + data_file("tiny.yaml") +
                 "\neval: {every_steps: 1000}\noptimizer: {lr: 2}\nvars: {unused: 1}\n");
  for (const char* processes : {"1", "2"}) {
    const Arguments words = {"eval", "--checkpoint", run_dir.string(), "--nproc", processes};
    const Outcome stored = run_expecting(0, words);
    CHECK(count(stored.err, "warning") == 0);
    Arguments given = words;
    given.insert(given.end(), {"--config", config.string()});
    const Outcome own = run_expecting(0, given);
    CHECK(count(own.err, "[never-runs]") == 0);
    CHECK(count(own.err, "[lr-too-large]") == 0);
    CHECK(count(own.err, "[unused-var]") == 1);  // what concerns evaluation, too
    given.insert(given.end(), {"--set", "eval.at_end=true", "--set", "eval.nothing=1"});
    const Outcome wrong = run_expecting(3, given);
    CHECK(count(wrong.err, "--set#2: error") == 1);
    CHECK(count(wrong.err, "[override-shadowed]") == 0);
  }
}

TEST_CASE("a long evaluation says how far it is, a short one nothing", "[eval]") {
  const TempDir folder;
  run_expecting(0, train_tiny(folder.path()));
  const Arguments words = {
      "eval", "--checkpoint", folder.path().string(), "--set", "eval.micro_batch_size=1", "--set"};
  Arguments brief = words;
  brief.emplace_back("data.num_samples=100");
  CHECK(count(run_expecting(0, brief).err, "eval  batch") == 0);
  Arguments endless = words;
  endless.emplace_back("data.num_samples=1B");
  Program program(endless);
  program.await_stderr("eval  batch ");
  program.send(SIGTERM);
  const Outcome outcome = program.wait();
  CHECK(outcome.out.empty());
  CHECK(count(outcome.err, "/100000000, 3 s\n") == 1);
}

TEST_CASE("eval refuses what it cannot evaluate", "[eval]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  const Outcome missing = run_expecting(5, {"eval", "--checkpoint", run_dir.string()});
  CHECK(count(missing.err, "[checkpoint-none]") == 1);
  run_expecting(0, train_tiny(run_dir));
  const Outcome misfit =
      run_expecting(5, {"eval", "--checkpoint", run_dir.string(), "--set", "model.hidden_size=48"});
  CHECK(count(misfit.err, "[checkpoint-shape]") == 1);
  const Outcome unknown =
      run_expecting(3, {"eval", "--checkpoint", run_dir.string(), "--set", "eval.batches=1"});
  CHECK(count(unknown.err, "[unknown-key]") == 1);
}

TEST_CASE("eval needs weights and evaluation data, nothing else of the run", "[eval]") {
  const TempDir folder;
  const fs::path config = folder.path() / "text.yaml";
  write_file(folder.path() / "train.txt", std::string(1000, 'a'));
  write_file(folder.path() / "eval.txt", "aaaaaaaaaabbbbbbbbbb" + std::string(300, 'a'));
  write_file(config, read_file(data_file("text.yaml")));
  const fs::path run_dir = folder.path() / "run";
  run_expecting(0,
                {"train",
                 config.string(),
                 "--output-dir",
                 run_dir.string(),
                 "--set",
                 "data.eval=[" + (folder.path() / "eval.txt").string() + "]"});
  const Json trained = records(run_dir, "eval").at(2);
  fs::remove(folder.path() / "train.txt");
  fs::remove(config);
  drop_optimizer(run_dir / "checkpoints" / "step-00000002");
  const Outcome listed = run_expecting(0, {"inspect", run_dir.string(), "--tensors"});
  REQUIRE(count(listed.out, "optim/") == 0);
  for (const char* processes : {"1", "2"}) {
    const Json result = last_line(
        run_expecting(0, {"eval", "--checkpoint", run_dir.string(), "--nproc", processes}));
    const auto loss = result.at("loss").get<double>();
    CHECK(std::abs(loss - trained.at("loss").get<double>()) <= 1e-6 * loss);
    CHECK(result.at("tokens") == trained.at("tokens"));
  }
}

TEST_CASE("eval and inspect say the same about damaged checkpoints, and nothing of train",
          "[eval]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  run_expecting(0, train_tiny(run_dir));
  const auto newest = run_dir / "checkpoints" / "step-00000012";
  const auto older = run_dir / "checkpoints" / "step-00000006";
  const std::vector<Arguments> commands = {{"eval", "--checkpoint", run_dir.string()},
                                           {"inspect", run_dir.string()}};
  const auto require = [&](const std::string& id, const std::string& part) {
    std::vector<std::string> texts;
    for (const Arguments& arguments : commands) {
      texts.push_back(run_expecting(5, arguments).err);
    }
    INFO(texts.front());
    CHECK(count(texts.front(), "[" + id + "]") == 1);
    CHECK(count(texts.front(), part) >= 1);
    CHECK(count(texts.front(), "--overwrite") == 0);
    CHECK(texts.front() == texts.back());
  };
  fs::remove(newest / "rank-0000.h5");
  require("checkpoint-incomplete", "name the newest complete one, " + older.string());
  fs::remove(older / "manifest.json");
  require("checkpoint-damaged", older.string() + ": ");
}

TEST_CASE("a stored configuration that this program cannot read is the checkpoint's fault",
          "[eval]") {
  const TempDir folder;
  run_expecting(0, train_tiny(folder.path()));
  const fs::path checkpoint = folder.path() / "checkpoints" / "step-00000012";
  colossal::detail::Manifest manifest = colossal::detail::read_manifest(checkpoint);
  manifest.state.config_yaml += "invention: {of: the future}\n";
  write_file(checkpoint / "manifest.json", colossal::detail::to_text(manifest));
  const Outcome evaluated = run_expecting(5, {"eval", "--checkpoint", checkpoint.string()});
  CHECK(count(evaluated.err, "[checkpoint-config]") == 1);
  CHECK(count(evaluated.err, "`invention` is not a key") == 1);
  for (const char* processes : {"1", "2"}) {
    const Outcome resumed = run_expecting(
        5, train_tiny(folder.path(), {"--set", "train.steps=14", "--nproc", processes}));
    const bool launched = std::string_view(processes) == "2";  // its block repeats the last error
    CHECK(count(resumed.err, "[checkpoint-config]") == (launched ? 2 : 1));
    CHECK(count(resumed.err, "last  error: ") == (launched ? 1 : 0));
  }
  // With a configuration of one's own the weights are still of use.
  run_expecting(0,
                {"eval", "--checkpoint", checkpoint.string(), "--config", data_file("tiny.yaml")});
}

TEST_CASE("inspect describes and verifies what train wrote", "[eval]") {
  const TempDir folder;
  run_expecting(0, train_tiny(folder.path(), {"--nproc", "2"}));
  const Outcome text = run_expecting(0, {"inspect", folder.path().string(), "--tensors"});
  CHECK(count(text.out, "model/") >= 5);
  CHECK(count(text.out, "optim/exp_avg/") >= 5);
  run_expecting(0, {"inspect", folder.path().string(), "--verify", "--format", "json"});
  flip_bytes(folder.path() / "checkpoints" / "step-00000012" / "rank-0000.h5");
  run_expecting(5, {"inspect", folder.path().string(), "--verify"});
}
