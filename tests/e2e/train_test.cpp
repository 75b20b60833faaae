// Does a run do what its file says, and leave behind what section 9 promises?
#include "e2e/program.hpp"
#include "support/free_port.hpp"

#include <fmt/format.h>

#include <cmath>

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

TEST_CASE("run.deterministic promises the equal bits of a cpu", "[train][deterministic]") {
  const TempDir folder;
  for (const char* processes : {"1", "2"}) {
    const Arguments more = {"--nproc", processes, "--set", "run.threads=2"};
    const Arguments promised = joined({more, {"--set", "run.deterministic=true"}});
    const fs::path first = folder.path() / (std::string("first-") + processes);
    const fs::path second = folder.path() / (std::string("second-") + processes);
    const fs::path plain = folder.path() / (std::string("plain-") + processes);
    run_expecting(0, train_tiny(first, promised));
    run_expecting(0, train_tiny(second, promised));
    run_expecting(0, train_tiny(plain, more));
    for (const fs::path& other : {second, plain}) {
      require_same_losses(first, other, 0);
      require_same_tensors(first / "checkpoints" / "step-00000012",
                           other / "checkpoints" / "step-00000012");
    }
  }
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

namespace {

/// `--set` before each text.
Arguments sets(const Arguments& texts) {
  Arguments arguments;
  for (const std::string& text : texts) {
    arguments.insert(arguments.end(), {"--set", text});
  }
  return arguments;
}

/// Loss of the evaluation at `step`.
double eval_loss(const fs::path& run_dir, int step) {
  return records(run_dir, "eval").at(step).at("loss").get<double>();
}

/// A trained run, and its weights as a file of safetensors and as a checkpoint of weights alone.
class Donor {
 public:
  Donor() {
    run_expecting(0, train_tiny(run()));
    run_expecting(0, {"export", "--checkpoint", run().string(), "-o", file().string()});
    run_expecting(
        0,
        {"import", file().string(), "--model", data_file("tiny.yaml"), "-o", imported().string()});
  }
  [[nodiscard]] fs::path run() const { return folder_.path() / "donor"; }
  [[nodiscard]] fs::path file() const { return folder_.path() / "out" / "model.safetensors"; }
  [[nodiscard]] fs::path imported() const { return folder_.path() / "imported"; }
  [[nodiscard]] fs::path path(const std::string& name) const { return folder_.path() / name; }

 private:
  TempDir folder_;
};

const std::string kRamp = "train.batch_ramp={start: 2, increment: 2, samples: 20}";

}  // namespace

TEST_CASE("C2 row 43: a run begins with weights alone, whatever holds them", "[train][init]") {
  const Donor donor;
  const double expected = eval_loss(donor.run(), 12);
  int number = 0;
  for (const fs::path& from :
       {donor.run(), donor.run() / "checkpoints", donor.imported(), donor.file()}) {
    for (const Arguments& how :
         {Arguments{}, Arguments{"--nproc", "2", "--set", "parallel.zero.stage=3"}}) {
      INFO(from);
      const fs::path run_dir = donor.path("run" + std::to_string(++number));
      const Outcome outcome =
          run_expecting(0,
                        train_tiny(run_dir,
                                   joined({how,
                                           sets({"model.init_from=" + from.string(),
                                                 "eval.at_start=true",
                                                 "train.steps=9"})})));
      CHECK(count(outcome.err, "init      weights of " + from.string()) == 1);
      const double found = eval_loss(run_dir, 0);
      CHECK(std::abs(found - expected) <= (how.empty() ? 0 : 1e-5 * expected));
      CHECK(records(run_dir).at(1).at("samples") == 8);  // a beginning, not a continuation
    }
  }
}

TEST_CASE("once a run has a checkpoint, that comes before model.init_from", "[train][init]") {
  const Donor donor;
  const fs::path run_dir = donor.path("run");
  const Arguments from = sets({"model.init_from=" + donor.run().string()});
  CHECK(count(run_expecting(0, train_tiny(run_dir, from)).err, "init-ignored") == 0);
  const Arguments longer = joined({from, sets({"train.steps=14"})});
  fs::rename(donor.run(), donor.path("gone"));  // nobody looks for it any more
  const Outcome again = run_expecting(0, train_tiny(run_dir, longer));
  CHECK(count(again.err, "[init-ignored]") == 1);
  CHECK(count(again.err, "resume    step 13") == 1);
  CHECK(count(again.err, "init      weights of") == 0);
  const Outcome anew = run_expecting(4, train_tiny(donor.path("other"), longer));
  CHECK(count(anew.err, "[file-not-found]") == 1);
}

TEST_CASE("weights that do not fit are refused with ten differences, once", "[train][init]") {
  const Donor donor;
  const auto refused = [&](const fs::path& from, const Arguments& texts, const Arguments& how) {
    const Outcome outcome = run_expecting(
        5,
        train_tiny(donor.path("refused"),
                   joined({how, sets({"model.init_from=" + from.string()}), sets(texts)})));
    INFO(outcome.err);
    CHECK(times_told(outcome, "[weights-mismatch]") == 1);
    CHECK_FALSE(fs::exists(donor.path("refused") / "checkpoints" / "latest"));
    return outcome.err;
  };
  const std::string wide = refused(donor.run(), {"model.hidden_size=64"}, {"--nproc", "2"});
  CHECK(wide.find("model.hidden_size: 32 in the checkpoint, 64 here") != std::string::npos);
  CHECK(wide.find("shape: embed.tokens.weight is [64, 32] in the checkpoint, [64, 64] here") !=
        std::string::npos);
  CHECK(wide.find(" more") != std::string::npos);
  const std::string deep = refused(donor.run(), {"model.num_layers=2"}, {});
  CHECK(deep.find("missing: blocks.1.") != std::string::npos);
  const std::string heads = refused(donor.imported(), {"model.num_heads=4"}, {});
  CHECK(heads.find("model.num_heads: 2 in the checkpoint, 4 here") != std::string::npos);
  const std::string file = refused(donor.file(), {"model.num_layers=2"}, {});
  CHECK(file.find("missing: transformer.h.1.") != std::string::npos);
}

TEST_CASE("a batch ramp is planned, counted and resumed", "[train][ramp]") {
  const TempDir folder;
  const Arguments ramp = sets(
      {kRamp, "train.micro_batch_size=2", "checkpoint.every_steps=1", "checkpoint.keep_last=20"});
  const fs::path whole = folder.path() / "whole";
  const Outcome outcome = run_expecting(0, train_tiny(whole, ramp));
  CHECK(count(outcome.err,
              "ramp      2 to 8 samples by 2 over 20 samples: 7 smaller steps\n"
              "steps     12  (992 tokens, 128 per full step)") == 1);
  const std::map<int, Json> steps = records(whole);
  const std::vector<int> sizes = {2, 2, 2, 2, 4, 4, 6, 8, 8, 8, 8, 8};
  int consumed = 0;
  for (int step = 1; step <= 12; ++step) {
    INFO("step " << step);
    consumed += sizes[static_cast<std::size_t>(step) - 1];
    CHECK(steps.at(step).at("batch_size") == sizes[static_cast<std::size_t>(step) - 1]);
    CHECK(steps.at(step).at("samples") == consumed);
    CHECK(steps.at(step).at("tokens") == consumed * 16);
  }
  // From inside of the ramp, on two processes.
  const fs::path rest = folder.path() / "rest";
  fs::create_directories(rest / "checkpoints");
  fs::copy(whole / "checkpoints" / "step-00000005",
           rest / "checkpoints" / "step-00000005",
           fs::copy_options::recursive);
  run_expecting(
      0, train_tiny(rest, joined({sets({kRamp, "train.micro_batch_size=1"}), {"--nproc", "2"}})));
  for (const auto& [step, record] : records(rest)) {
    INFO("step " << step);
    CHECK(step > 5);
    CHECK(record.at("data_hash") == steps.at(step).at("data_hash"));
    CHECK(record.at("samples") == steps.at(step).at("samples"));
    const double expected = steps.at(step).at("loss").get<double>();
    CHECK(std::abs(record.at("loss").get<double>() - expected) < 1e-4 * expected);
  }
  CHECK(records(rest).contains(12));
}

TEST_CASE("evaluation and generation do not follow a ramp", "[train][ramp]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  run_expecting(0, train_tiny(run_dir, sets({kRamp, "train.micro_batch_size=2"})));
  const Json report = last_line(run_expecting(0, {"eval", "--checkpoint", run_dir.string()}));
  CHECK(report.at("loss") == eval_loss(run_dir, 12));
}

TEST_CASE("a loss spike ends a run with exit code 7, also right after a resume", "[train][spike]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  const Arguments calm = {
      "scheduler.type=constant", "train.loss_spike=2", "checkpoint.every_steps=101"};
  run_expecting(0, train_tiny(run_dir, sets(joined({calm, {"train.steps=101"}}))));
  const Outcome outcome = run_expecting(
      7,
      train_tiny(
          run_dir,
          joined({sets(joined({calm, {"train.steps=200", "optimizer.lr=3"}})), {"--nproc", "2"}})));
  CHECK(times_told(outcome, "[loss-spike]") == 1);
  CHECK(count(outcome.err, "more than train.loss_spike 2 times") >= 1);
  const Json status = Json::parse(read_file(run_dir / "status.json"));
  CHECK(status.at("state") == "failed");
  CHECK(status.at("exit") == 7);
  CHECK(status.at("step").get<int>() < 110);
  CHECK(fs::exists(run_dir / "checkpoints" / "step-00000101" / "manifest.json"));
}

TEST_CASE("smoothed labels and means of micro-batches change training alone", "[train]") {
  const TempDir folder;
  const auto first = [&](const std::string& name, const Arguments& texts) {
    run_expecting(0,
                  train_tiny(folder.path() / name,
                             sets(joined({{"eval.at_start=true", "train.steps=8"}, texts}))));
    return records(folder.path() / name).at(1).at("loss").get<double>();
  };
  const double plain = first("plain", {});
  const double smoothed = first("smoothed", {"train.label_smoothing=0.5"});
  CHECK(smoothed != plain);
  CHECK(eval_loss(folder.path() / "plain", 0) == eval_loss(folder.path() / "smoothed", 0));
  const double means = first("means", {"train.loss_reduction=micro_batch"});
  CHECK(std::abs(means - plain) < 1e-6);  // one micro-batch, whose mean is that of the step
}
