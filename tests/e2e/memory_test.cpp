// Does a run with a device of a given size behave as on a real one: the same numbers while it fits,
// one clear report when it does not?
#include "e2e/program.hpp"

#include <fmt/format.h>

#include <regex>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

/// A run whose activations outweigh its weights.
Arguments train_wide(const fs::path& folder, const Arguments& more = {}) {
  Arguments arguments = train_tiny(folder,
                                   {"--set",
                                    "model.hidden_size=64",
                                    "--set",
                                    "model.num_layers=2",
                                    "--set",
                                    "data.seq_length=64",
                                    "--set",
                                    "train.steps=3",
                                    "--set",
                                    "scheduler={type: constant}"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Arguments with_device(double bytes, Arguments more = {}) {
  more.emplace_back("--set");
  more.push_back(fmt::format("run.device_memory={}", static_cast<std::int64_t>(bytes)));
  return more;
}

/// What the run takes without a limit, over all ranks.
double peak_of(const fs::path& folder, const Arguments& more = {}) {
  const Json summary = last_line(run_expecting(0, train_wide(folder, more)));
  return summary.at("device_peak").get<double>();
}

}  // namespace

TEST_CASE("a run that fits a device gives the same numbers, and shows what it takes", "[memory]") {
  const TempDir folder;
  const double peak = peak_of(folder.path() / "free");
  REQUIRE(peak > 1e6);
  const Outcome outcome =
      run_expecting(0, train_wide(folder.path() / "limited", with_device(1.05 * peak)));
  require_same_losses(folder.path() / "free", folder.path() / "limited", 0);
  CHECK(std::regex_search(outcome.err, std::regex(R"(mem [\d.]+ MiB/[\d.]+ MiB)")));
  CHECK(std::regex_search(
      outcome.err, std::regex(R"(memory    peak [\d.]+ MiB of tensors a rank of [\d.]+ MiB)")));
  const Json summary = last_line(outcome);
  CHECK(summary.at("device_peak").get<double>() <= 1.05 * peak);
  CHECK(summary.at("device_planned").get<double>() > 0);
  const Json last = records(folder.path() / "limited").at(3);
  CHECK(last.at("device_peak").get<double>() > 0.5 * peak);
  CHECK(last.at("host_bytes") == 0);
  CHECK(last.at("nvme_bytes") == 0);
}

TEST_CASE("a run that does not fit ends with one report, whose first fix works", "[memory]") {
  const TempDir folder;
  const double cap = 0.8 * peak_of(folder.path() / "free");
  const Outcome outcome = run_expecting(6, train_wide(folder.path() / "run", with_device(cap)));
  CHECK(times_told(outcome, "[out-of-memory]") == 1);
  CHECK(std::regex_search(
      outcome.err,
      std::regex(
          R"(rank 0 is out of memory in (forward|backward) of block \d, micro-batch 0 of step 1: )"
          R"(it asked for [\d.]+ [KM]iB and holds [\d.]+ MiB of the [\d.]+ MiB of its device)")));
  CHECK(count(outcome.err, "estimate  weights") == 1);
  CHECK(count(outcome.err, "train.micro_batch_size 8 -> 4: ") == 1);
  CHECK(Json::parse(read_file(folder.path() / "run" / "status.json")).at("exit") == 6);
  CHECK(count(read_file(folder.path() / "run" / "abort.json"), "out-of-memory") >= 1);
  run_expecting(0,
                train_wide(folder.path() / "smaller",
                           with_device(cap, {"--set", "train.micro_batch_size=4"})));
}

TEST_CASE("ranks that run out of memory together say so once", "[memory]") {
  const TempDir folder;
  const Arguments two = {"--nproc", "2"};
  const double cap = 0.8 * peak_of(folder.path() / "free", two);
  const Outcome outcome =
      run_expecting(6, train_wide(folder.path() / "run", with_device(cap, two)));
  CHECK(times_told(outcome, "[out-of-memory]") == 1);
  CHECK(times_told(outcome, "is out of memory in") == 1);
  CHECK(std::regex_search(outcome.err, std::regex("rank [01] is out of memory in")));
}

TEST_CASE("a device too small for the weights ends a run before its first step", "[memory]") {
  const TempDir folder;
  const Outcome outcome = run_expecting(6, train_wide(folder.path() / "run", with_device(1 << 18)));
  CHECK(count(outcome.err, "rank 0 is out of memory before the first step") >= 1);
  CHECK(times_told(outcome, "[out-of-memory]") == 1);
  CHECK_FALSE(fs::exists(folder.path() / "run" / "checkpoints" / "latest"));
}

TEST_CASE("a plan that is larger than the device is told before the first step", "[memory]") {
  const TempDir folder;
  const double planned =
      last_line(run_expecting(0, train_wide(folder.path() / "free"))).at("device_planned");
  const Outcome outcome = run(train_wide(folder.path() / "run", with_device(0.99 * planned)));
  CHECK(count(outcome.err, "[memory-tight]") == 1);
  CHECK((outcome.code == 0 || outcome.code == 6));  // an estimate is no measurement
}

TEST_CASE("eval runs on a device of a given size, too", "[memory]") {
  const TempDir folder;
  run_expecting(0, train_wide(folder.path()));
  const auto eval = [&](int code, const std::string& size) {
    return run_expecting(
        code,
        {"eval", "--checkpoint", folder.path().string(), "--set", "run.device_memory=" + size});
  };
  CHECK(last_line(eval(0, "64MiB")).at("step") == 3);
  const Outcome outcome = eval(6, "300KiB");
  CHECK(times_told(outcome, "[out-of-memory]") == 1);
  CHECK(count(outcome.err, "run.device_memory") >= 1);
}
