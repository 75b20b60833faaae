// Does a run do what its file says, and leave behind what section 9 promises?
#include "e2e/program.hpp"
#include "support/free_port.hpp"

#include <fmt/format.h>

using namespace colossal::test;
namespace fs = std::filesystem;

TEST_CASE("a run writes metrics, status, plan, environment and a summary", "[train]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  const Outcome outcome = run_expecting(0, train_tiny(run_dir));

  const std::map<int, Json> steps = records(run_dir);
  REQUIRE(steps.size() == 12);
  const Json& last = steps.at(12);
  CHECK(last.at("loss").get<double>() < steps.at(1).at("loss").get<double>());
  CHECK(last.at("samples") == 96);
  CHECK(last.at("tokens") == 96 * 16);
  CHECK(last.at("attempt") == 1);
  CHECK(records(run_dir, "eval").contains(12));

  const Json status = Json::parse(read_file(run_dir / "status.json"));
  CHECK(status.at("state") == "finished");
  CHECK(status.at("exit") == 0);
  CHECK(status.at("step") == 12);
  CHECK(status.at("total") == 12);

  const Json environment = Json::parse(read_file(run_dir / "env.json"));
  CHECK(environment.at("command").at(0) == "train");
  CHECK(environment.at("versions").at("torch").get<std::string>().starts_with("2."));
  CHECK(read_file(run_dir / "config.yaml") == read_file(data_file("tiny.yaml")));
  CHECK(fs::exists(run_dir / "checkpoints" / "step-00000012" / "manifest.json"));
  CHECK(fs::exists(run_dir / "logs" / "train.log"));

  const Json summary = last_line(outcome);
  CHECK(summary.at("reason") == "finished");
  CHECK(summary.at("step") == 12);
  CHECK(summary.at("loss") == last.at("loss"));
  CHECK(summary.at("eval_loss") == records(run_dir, "eval").at(12).at("loss"));
  CHECK(summary.at("startup_seconds").get<double>() > 0);
  CHECK(count(outcome.err, "colossal-train eval --checkpoint") == 1);
  CHECK(count(outcome.out, "\n") == 1);
}

TEST_CASE("plan prints what train stores, at every number of processes", "[train]") {
  const TempDir folder;
  for (const char* processes : {"1", "2", "4", "8"}) {
    const fs::path run_dir = folder.path() / processes;
    const Outcome outcome =
        run_expecting(0, train_tiny(run_dir, {"--nproc", processes, "--set", "train.steps=8"}));
    const Outcome plan = run_expecting(0,
                                       {"plan",
                                        data_file("tiny.yaml"),
                                        "--world-size",
                                        processes,
                                        "--format",
                                        "json",
                                        "--set",
                                        "train.steps=8"});
    CHECK(plan.out == read_file(run_dir / "plan.json"));
    CHECK(count(outcome.err, "\nplan ") == 1);  // one copy, however many ranks
    CHECK(count(outcome.err, "launch:") == 1);
    CHECK(count(outcome.out, "\n") == 1);
  }
}

TEST_CASE("the resolved configuration repeats the run bit for bit", "[train]") {
  const TempDir folder;
  run_expecting(0, train_tiny(folder.path() / "a", {"--set", "optimizer.lr=3e-3", "--nproc", "2"}));
  run_expecting(0,
                {"train",
                 (folder.path() / "a" / "config.resolved.yaml").string(),
                 "--nproc",
                 "2",
                 "--output-dir",
                 (folder.path() / "b").string()});
  require_same_losses(folder.path() / "a", folder.path() / "b", 0);
}

TEST_CASE("gradient accumulation and processes do not change the losses", "[train]") {
  const TempDir folder;
  for (const int accumulation : {1, 2, 8}) {
    run_expecting(0,
                  train_tiny(folder.path() / std::to_string(accumulation),
                             {"--set",
                              fmt::format("train.gradient_accumulation={}", accumulation),
                              "--set",
                              "train.precision=fp64"}));
  }
  run_expecting(
      0, train_tiny(folder.path() / "4 ranks", {"--nproc", "4", "--set", "train.precision=fp64"}));
  require_same_losses(folder.path() / "1", folder.path() / "2", 1e-9);
  require_same_losses(folder.path() / "1", folder.path() / "8", 1e-9);
  require_same_losses(folder.path() / "1", folder.path() / "4 ranks", 1e-9);
}

TEST_CASE("--set beats the file, and a dedicated flag beats --set", "[train]") {
  const TempDir folder;
  const fs::path wanted = folder.path() / "flag";
  run_expecting(0,
                train_tiny(wanted,
                           {"--set",
                            "run.output_dir=" + (folder.path() / "set").string(),
                            "--set",
                            "scheduler={type: constant}",
                            "--set",
                            "optimizer.lr=1e-4",
                            "--set",
                            "train.steps=1"}));
  CHECK(records(wanted).at(1).at("lr") == 1e-4);
  CHECK_FALSE(fs::exists(folder.path() / "set"));
}

TEST_CASE("a dry run builds everything and trains nothing", "[train]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  for (const char* processes : {"1", "2", "8"}) {
    const Outcome outcome =
        run_expecting(0, train_tiny(run_dir, {"--dry-run", "--nproc", processes}));
    CHECK(outcome.out == "dry run ok\n");
    CHECK(count(outcome.err, "\nplan ") == 1);
    CHECK(fs::is_empty(run_dir));
  }
}

TEST_CASE("ranks started by torchrun's variables form one run", "[train]") {
  const TempDir folder;
  const int port = free_port();
  Program first(train_tiny(folder.path() / "torchrun"), torchrun_rank(0, 2, port));
  Program second(train_tiny(folder.path() / "torchrun"), torchrun_rank(1, 2, port));
  const Outcome rank_0 = first.wait();
  const Outcome rank_1 = second.wait();
  INFO(rank_0.err << "\n--- rank 1\n" << rank_1.err);
  CHECK(rank_0.code == 0);
  CHECK(rank_1.code == 0);
  CHECK(rank_1.out.empty());
  CHECK(count(rank_0.err + rank_1.err, "plan ") == 1);
  run_expecting(0, train_tiny(folder.path() / "spawn", {"--nproc", "2"}));
  require_same_losses(folder.path() / "torchrun", folder.path() / "spawn", 0);
}

TEST_CASE("a warning of before the ranks meet is told by one of them", "[train]") {
  const TempDir folder;
  const int port = free_port();
  const Arguments train =
      train_tiny(folder.path() / "run", {"--set", "checkpoint={at_end: false, every_steps: 99}"});
  Program first(train, torchrun_rank(0, 2, port));
  Program second(train, torchrun_rank(1, 2, port));
  const Outcome rank_0 = first.wait();
  const Outcome rank_1 = second.wait();
  INFO(rank_0.err << "\n--- rank 1\n" << rank_1.err);
  CHECK(rank_0.code == 0);
  CHECK(rank_1.code == 0);
  CHECK(count(rank_0.err + rank_1.err, "[checkpoint-none]") == 1);
}

TEST_CASE("a micro-batch alone makes the batch that plan shows", "[train]") {
  const TempDir folder;
  const fs::path config = folder.path() / "tiny.yaml";
  std::string text = read_file(data_file("tiny.yaml"));
  const std::string global = "global_batch_size: 8";
  text.replace(text.find(global), global.size(), "micro_batch_size: 4");
  write_file(config, text);
  const Outcome plan = run_expecting(0, {"plan", config.string(), "--world-size", "3"});
  CHECK(count(plan.out, "12 = data 3 x micro 4 x accumulation 1\n") == 1);
}

TEST_CASE("steps written as 1e3 are 1000 in every command", "[train]") {
  const TempDir folder;
  const fs::path config = folder.path() / "tiny.yaml";
  std::string text = read_file(data_file("tiny.yaml"));
  text.replace(text.find("steps: 12"), 9, "steps: 1e3");
  write_file(config, text);
  const std::string file = config.string();
  run_expecting(0, {"validate", file});
  CHECK(count(run_expecting(0, {"config", "show", file}).out, " steps: 1000\n") == 1);
  const Outcome plan = run_expecting(0, {"plan", file, "--format", "json"});
  CHECK(Json::parse(plan.out).at("total_steps") == 1000);
  const Outcome dry = run_expecting(
      0, {"train", file, "--dry-run", "--output-dir", (folder.path() / "run").string()});
  CHECK(count(dry.err, "\nsteps     1,000  (") == 1);
}

TEST_CASE("-q keeps stderr quiet, the log file complete", "[train]") {
  const TempDir folder;
  Arguments arguments = train_tiny(folder.path() / "run");
  arguments.insert(arguments.begin(), "-q");
  const Outcome outcome = run_expecting(0, arguments);
  CHECK(outcome.err.empty());
  CHECK(count(read_file(folder.path() / "run" / "logs" / "train.log"), "step ") >= 12);
}
