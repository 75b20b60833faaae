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

/// A run whose optimizer states outweigh all else: 16 bytes of state a parameter, few tokens.
Arguments train_deep(const fs::path& folder, const Arguments& more = {}) {
  Arguments arguments = train_tiny(folder);
  for (const char* set : {"model.hidden_size=128",
                          "model.num_layers=6",
                          "train.steps=6",
                          "train.global_batch_size=2",
                          "checkpoint.every_steps=2",
                          "scheduler={type: constant}"}) {
    arguments.insert(arguments.end(), {"--set", set});
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// Everything in host memory, states on disk if a folder is given.
Arguments in_host_memory(const std::string& limit, const fs::path& disk = {}) {
  const std::string nvme = disk.empty() ? "" : ", nvme: {path: " + disk.string() + "}";
  return {"--set",
          "parallel.gemini={placement: cpu, chunk_size: 64KiB, host_memory: " + limit + nvme + "}"};
}

std::string bytes(double number) {
  return fmt::format("{}", static_cast<std::int64_t>(number));
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
  CHECK(count(outcome.err, "[memory-over]") == 1);
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

TEST_CASE("states on disk train what host and device together cannot hold", "[memory]") {
  const TempDir folder;
  run_expecting(0, train_deep(folder.path() / "free"));
  const Outcome plan = run_expecting(
      0, {"plan", (folder.path() / "free" / "config.resolved.yaml").string(), "--format", "json"});
  const double parameters = Json::parse(plan.out).at("parameters");
  const double state = 16 * parameters;
  const std::string host = bytes(0.62 * state);
  const Arguments device = with_device(0.3 * state);

  const auto limited = [&](const std::string& name, Arguments where, const char* processes) {
    where.insert(where.end(), device.begin(), device.end());
    where.insert(where.end(), {"--nproc", processes});
    return train_deep(folder.path() / name, where);
  };
  const Outcome refused = run_expecting(6, limited("host", in_host_memory(host), "1"));
  INFO(refused.err);
  CHECK(times_told(refused, "[host-memory]") == 1);
  CHECK(count(refused.err, "parallel.gemini.nvme") >= 1);
  CHECK(count(refused.err, "step  1") == 0);

  for (const char* processes : {"1", "2"}) {
    const std::string name = std::string("disk") + processes;
    const Outcome outcome =
        run_expecting(0, limited(name, in_host_memory(host, folder.path() / "states"), processes));
    INFO(outcome.err);
    require_same_losses(folder.path() / "free", folder.path() / name, 1e-5);
    CHECK(records(folder.path() / name).at(6).at("nvme_bytes").get<double>() > 0.2 * state);
  }
}

TEST_CASE("a disk that fails in a step ends the run, and nothing of it is lost", "[memory]") {
  const TempDir folder;
  const Arguments on_disk = in_host_memory("auto", folder.path() / "states");
  for (const char* processes : {"1", "2"}) {
    INFO(processes << " processes");
    const auto train = [&](const std::string& name) {
      Arguments more = on_disk;
      more.insert(more.end(), {"--nproc", processes});
      return train_deep(folder.path() / (name + processes), more);
    };
    run_expecting(0, train("whole"));
    const double states =
        records(folder.path() / (std::string("whole") + processes)).at(6).at("nvme_bytes");
    // every step writes all states once: the fourth stops in its middle
    const std::string fault = "rank=0,kind=nvme-error:" + bytes(3.5 * states);
    const Outcome failed =
        run_expecting(9, train("run"), {.environment = {{"COLOSSAL_FAULT", fault}}});
    INFO(failed.err);
    CHECK(times_told(failed, "[nvme-io]") == 1);
    CHECK(count(failed.err, "step  4/") == 0);
    const fs::path run_dir = folder.path() / (std::string("run") + processes);
    CHECK(read_file(run_dir / "abort.json").find("nvme-io") != std::string::npos);
    run_expecting(0, {"inspect", run_dir.string(), "--verify"});
    const Outcome resumed = run_expecting(0, train("run"));
    CHECK(count(resumed.err, "resume    ") == 1);
    require_same_losses(folder.path() / (std::string("whole") + processes), run_dir, 0);
  }
}

TEST_CASE("placements that cannot hold what a step needs end with one report", "[memory]") {
  const TempDir folder;
  const Arguments two = {"--nproc", "2"};
  const double half = 0.5 * peak_of(folder.path() / "free", two);
  const std::vector<std::pair<std::string, Arguments>> cases = {
      {"{placement: auto, chunk_size: 64KiB}", with_device(half, two)},
      {"{placement: const, const_budget: 4KiB, chunk_size: 64KiB}", two}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    INFO(cases[i].first);
    const fs::path run_dir = folder.path() / std::to_string(i);
    Arguments more = cases[i].second;
    more.insert(more.end(), {"--set", "parallel.gemini=" + cases[i].first});
    const Outcome outcome = run_expecting(6, train_wide(run_dir, more));
    INFO(outcome.err);
    const int too_small = times_told(outcome, "[budget-too-small]");
    const int out = times_told(outcome, "[out-of-memory]");
    CHECK(too_small + out == 1);
    CHECK(count(outcome.err, "fix") >= 1);
    const std::string abort = read_file(run_dir / "abort.json");
    CHECK(abort.find(too_small == 1 ? "budget-too-small" : "out-of-memory") != std::string::npos);
    const Json status = Json::parse(read_file(run_dir / "status.json"));
    CHECK(status.at("state") == "failed");
    CHECK(status.at("exit") == 6);
  }
}
