// Does a run with a device of a given size behave as on a real one: the same numbers while it fits,
// one clear report when it does not?
#include "e2e/program.hpp"

#include <fmt/format.h>

#include <algorithm>
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

/// What the run takes without a limit, over all ranks.
double peak_of(const fs::path& folder, const Arguments& more = {}) {
  const Json summary = last_line(run_expecting(0, train_wide(folder, more)));
  return summary.at("device_peak").get<double>();
}

/// A change that a report offers.
struct Fix {
  std::string text;
  bool enough = false;  ///< alone

  /// As --set takes it: "a.b 8 -> 4, a.c: null" is a.b=4 and a.c=null.
  [[nodiscard]] Arguments sets() const {
    static const std::regex part(R"(([a-z_.]+)(?:: | \S+ -> )([^\s,]+))");
    Arguments all;
    for (std::sregex_iterator match(text.begin(), text.end(), part), end; match != end; ++match) {
      all.insert(all.end(), {"--set", (*match)[1].str() + "=" + (*match)[2].str()});
    }
    return all;
  }
};

/// All changes that the reports of a run offer with their bytes, each once.
std::vector<Fix> fixes_of(const Outcome& outcome) {
  static const std::regex line(
      R"(\n(?:\[ranks? [\d-]+\] )?  (?:fix)? +([a-z_]+\.[^\n]*): \d[\d.]* (?:B|KiB|MiB) less(, not)?)");
  std::vector<Fix> fixes;
  for (std::sregex_iterator match(outcome.err.begin(), outcome.err.end(), line), end; match != end;
       ++match) {
    const Fix fix{(*match)[1].str(), !(*match)[2].matched};
    if (std::ranges::find(fixes, fix.text, &Fix::text) == fixes.end()) {
      fixes.push_back(fix);
    }
  }
  return fixes;
}

/// Fails unless the report offers three changes with their bytes and the run passes with each that
/// it says to be enough, the first of them.
void require_fixes(const Outcome& refused, const fs::path& folder, const Arguments& more) {
  const std::vector<Fix> fixes = fixes_of(refused);
  INFO(refused.err);
  REQUIRE(fixes.size() == 3);
  CHECK(fixes.front().enough);
  for (std::size_t i = 0; i < fixes.size(); ++i) {
    INFO(fixes[i].text);
    if (fixes[i].enough) {
      run_expecting(
          0, train_wide(folder / fmt::format("fixed-{}", i), joined({more, fixes[i].sets()})));
    }
  }
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
  CHECK(std::regex_search(
      outcome.err,
      std::regex(
          R"(\n  memory +estimate +held\n  weights +([\d.]+ [KM]iB) +\1\n  gradients +([\d.]+ [KM]iB) +\2\n)"
          R"(  optimizer +([\d.]+ [KM]iB) +\3\n)"
          R"(  activations and buffers +[\d.]+ [KM]iB +[\d.]+ [KM]iB\n  in all +)")));
  CHECK(count(outcome.err, "reserved") == 0);  // a CPU's memory has no cache
  CHECK(count(outcome.err, "train.micro_batch_size 8 -> 4: ") == 1);
  CHECK(Json::parse(read_file(folder.path() / "run" / "status.json")).at("exit") == 6);
  CHECK(count(read_file(folder.path() / "run" / "abort.json"), "out-of-memory") >= 1);
  require_fixes(outcome, folder.path(), with_device(cap));
}

TEST_CASE("a run that lacks much is told changes that go far enough", "[memory]") {
  const TempDir folder;
  const double peak = peak_of(folder.path() / "free");
  const Arguments device = with_device(0.5 * peak);
  const Outcome outcome = run_expecting(6, train_wide(folder.path() / "run", device));
  CHECK(times_told(outcome, "[out-of-memory]") == 1);
  require_fixes(outcome, folder.path(), device);
}

TEST_CASE("a budget that is too small names three changes, and each that is enough works",
          "[memory]") {
  const TempDir folder;
  const Arguments two = {"--nproc", "2"};
  const auto gemini = [](const std::string& keys) {
    return Arguments{"--set", "parallel.gemini={chunk_size: 64KiB, " + keys + "}"};
  };
  // What the first step takes, which keeps nothing; of a device a little larger too little may be
  // used after it.
  const double first = peak_of(folder.path() / "first",
                               with_device(1 << 30,
                                           joined({two,
                                                   gemini("placement: auto, margin_ratio: 1e-6"),
                                                   {"--set", "train.steps=1"}})));
  // By the plan alone the first two lack what is needed, the third within a plan's error.
  const Arguments measured = joined({two, gemini("placement: auto")});
  const std::vector<std::pair<std::string, Arguments>> cases = {
      {"auto", with_device(1.07 * first, measured)},
      {"const", joined({two, gemini("placement: const, const_budget: 4KiB")})},
      {"close", with_device(1.14 * first, measured)}};
  for (const auto& [name, more] : cases) {
    INFO(name);
    const fs::path run_dir = folder.path() / name;
    const Outcome outcome = run_expecting(6, train_wide(run_dir, more));
    CHECK(times_told(outcome, "[budget-too-small]") == 1);
    CHECK(std::regex_search(outcome.err, std::regex(R"(: \d+ bytes are missing)")));
    CHECK(count(outcome.err, "[memory-over]") == (name == "close" ? 1 : 0));
    const std::string abort = read_file(run_dir / "abort.json");
    CHECK(count(abort, "budget-too-small") >= 1);
    CHECK((abort.find("step 1") != std::string::npos) == (name == "close"));  // a rank's phase
    CHECK(count(outcome.err, "step  1/") == 0);
    CHECK_FALSE(fs::exists(run_dir / "metrics.jsonl"));
    CHECK(status_of(run_dir).at("state") == "failed");
    require_fixes(outcome, run_dir, more);
  }
  // Neither does a rehearsal pass.
  const Arguments rehearsal = joined({cases.front().second, {"--dry-run"}});
  const Outcome dry = run_expecting(6, train_wide(folder.path() / "dry", rehearsal));
  CHECK(times_told(dry, "[budget-too-small]") == 1);
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
