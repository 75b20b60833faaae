// Does `eval` tell the same as evaluation during training, on any number of processes?
#include "e2e/program.hpp"

#include <cmath>

using namespace colossal::test;
namespace fs = std::filesystem;

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
