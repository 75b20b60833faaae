// Does an estimate tell what plan tells and what runs take, and does plan --strict refuse what does
// not fit?
#include "e2e/program.hpp"

#include <algorithm>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

/// A GPT that is large enough for its bytes to outweigh a block's, and small enough for seconds.
const std::string kWide =
    "run: {device: cpu}\n"
    "model: {type: gpt, num_layers: 3, hidden_size: 128, num_heads: 4, vocab_size: 1000}\n"
    "data: {type: synthetic, seq_length: 64, num_samples: 400}\n"
    "train: {steps: 3, global_batch_size: 16, micro_batch_size: 8}\n"
    "optimizer: {type: adamw, lr: 1e-3}\n"
    "checkpoint: {at_end: false}\n";

std::string write_config(const TempDir& folder, const std::string& text = kWide) {
  const fs::path file = folder.path() / "wide.yaml";
  write_file(file, text);
  return file.string();
}

Json estimate(const std::string& config, const Arguments& more) {
  Arguments all = {"estimate", config, "--format", "json"};
  all.insert(all.end(), more.begin(), more.end());
  return Json::parse(run_expecting(0, all).out);
}

/// `command CONFIG` with the overrides of a row.
Arguments with_row(const std::string& command, const std::string& config, const Json& row) {
  Arguments all = {command, config};
  for (const auto& set : row.at("set")) {
    all.insert(all.end(), {"--set", set.get<std::string>()});
  }
  return all;
}

/// The row of a policy on two processes, with micro-batches of 4 and without recomputation.
Json row_of(const Json& rows, const std::string& policy) {
  const auto found = std::ranges::find_if(rows, [&](const Json& row) {
    return row.at("policy") == policy && row.at("recompute") == "none" &&
           row.at("micro_batch") == 4 && row.at("world") == 2;
  });
  INFO(policy);
  REQUIRE(found != rows.end());
  return *found;
}

}  // namespace

TEST_CASE("rows of an estimate are the plans of their overrides", "[estimate]") {
  const TempDir folder;
  const std::string config = write_config(folder);
  const Json found = estimate(config, {"--world-size", "1,2,4", "--sweep-parallel"});
  CHECK(found.at("global_batch") == 16);
  const Json& rows = found.at("rows");
  REQUIRE(rows.size() > 100);
  for (std::size_t i = 0; i < rows.size(); i += rows.size() / 8) {
    const Json& row = rows[i];
    Arguments plan = with_row("plan", config, row);
    plan.insert(plan.end(),
                {"--world-size", std::to_string(row.at("world").get<int>()), "--format", "json"});
    const Json planned = Json::parse(run_expecting(0, plan).out);
    INFO(row.dump());
    const Json& rank = planned.at("ranks").at(0);
    CHECK(rank.at("total") == row.at("device"));
    for (const char* key : {"weights",
                            "grads",
                            "optimizer",
                            "activations",
                            "borrowed",
                            "buffers",
                            "host",
                            "host_parts",
                            "moved",
                            "nvme",
                            "nvme_parts"}) {
      CHECK(rank.at(key) == row.at(key));
    }
    CHECK(planned.at("comm_bytes_per_step") == row.at("comm_bytes_per_step"));
    CHECK(planned.at("batch").at("accumulation") == row.at("accumulation"));
  }
}

TEST_CASE("a run of each policy takes what its row of the estimate says, within 5 %",
          "[estimate]") {
  const TempDir folder;
  const std::string config = write_config(folder);
  const Json rows =
      estimate(config, {"--world-size", "2", "--sweep-parallel", "--gpu-memory", "64MiB"})
          .at("rows");
  int runs = 0;
  for (const char* policy : {"zero 0",
                             "zero 1",
                             "zero 2, optimizer on host",
                             "zero 3",
                             "zero 3, optimizer and weights on host",
                             "gemini cpu",
                             "gemini auto"}) {
    const Json row = row_of(rows, policy);
    Arguments train = with_row("train", config, row);
    train.insert(train.end(),
                 {"--set",
                  "run.device_memory=64MiB",
                  "--nproc",
                  "2",
                  "--output-dir",
                  (folder.path() / std::to_string(++runs)).string()});
    const Json summary = last_line(run_expecting(0, train));
    INFO(policy << ": estimated " << row.at("device") << ", peak " << summary.at("device_peak"));
    CHECK(row.at("device").get<double>() ==
          Approx(summary.at("device_peak").get<double>()).epsilon(0.05));
  }
}

TEST_CASE("estimate tells people which layouts fit", "[estimate]") {
  const TempDir folder;
  const std::string config = write_config(folder);
  const Outcome plain = run_expecting(0, {"estimate", config});
  CHECK(plain.out.starts_with("estimate  wide  16 samples a step; capacity "));
  CHECK(count(plain.out, "of this machine for all ranks") == 1);
  CHECK(count(plain.out, "\n1      zero 0  none               8 x 2  ") == 1);
  CHECK(count(plain.out, "   yes\n") == 1);
  const Outcome tight = run_expecting(
      0, {"estimate", config, "--world-size=2", "--sweep-parallel", "--gpu-memory=6MiB"});
  CHECK(count(tight.out, "capacity 6.0 MiB a device (run.device_memory)") == 1);
  CHECK(count(tight.out, "  OOM\n") > 10);
  CHECK(count(tight.out, "  yes\n") > 10);
  // sorted: after the first that does not fit none fits
  CHECK(tight.out.rfind("  yes\n") < tight.out.find("  OOM\n"));
}

TEST_CASE("the estimate of every shipped configuration has the plan of the file itself",
          "[estimate]") {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(COLOSSAL_SOURCE_DIR) / "configs")) {
    const std::string file = entry.path().string();
    if (entry.path().extension() != ".yaml" ||
        read_file(file).find("data: auto") != std::string::npos) {
      continue;
    }
    INFO(file);
    const Outcome plan = run({"plan", file, "--format", "json"});
    if (plan.code != 0) {
      continue;  // its data have not been prepared
    }
    const Json planned = Json::parse(plan.out);
    const Json rows = estimate(file, {}).at("rows");
    REQUIRE(rows.size() == 1);
    CHECK(rows[0].at("set").empty());
    CHECK(rows[0].at("world") == planned.at("mesh").at("world"));
    CHECK(rows[0].at("device") == planned.at("ranks").at(0).at("total"));
    CHECK(rows[0].at("host") == planned.at("ranks").at(0).at("host"));
    CHECK(rows[0].at("nvme") == planned.at("ranks").at(0).at("nvme"));
    CHECK(rows[0].at("micro_batch") == planned.at("batch").at("micro"));
    ++files;
  }
  CHECK(files >= 12);
}

TEST_CASE("estimate refuses what it cannot read", "[estimate]") {
  const TempDir folder;
  const std::string config = write_config(folder);
  CHECK(count(run_expecting(2, {"estimate", config, "--world-size", "0"}).err, "[usage]") == 1);
  CHECK(count(run_expecting(2, {"estimate", config, "--world-size", "1,x"}).err, "[usage]") == 1);
  CHECK(count(run_expecting(3, {"estimate", config, "--gpu-memory", "80 G"}).err, "[bad-bytes]") ==
        1);
  CHECK(count(run_expecting(3, {"estimate", config, "--set", "model.num_heads=3"}).err,
              "[heads-divisible]") == 1);
  CHECK(count(run_expecting(2, {"estimate"}).err, "[missing-argument]") == 1);
  const Outcome odd = run_expecting(0, {"estimate", config, "--world-size", "1,3"});
  CHECK(count(odd.out, "left out  1 layout: ") == 1);
  CHECK(count(odd.out, "[batch-mismatch]") == 1);
}

TEST_CASE("plan --strict refuses what does not fit, with the cheapest changes", "[estimate]") {
  const TempDir folder;
  const std::string config = write_config(folder);
  const auto plan = [&](int code, const Arguments& more) {
    Arguments all = {"plan", config, "--world-size", "2"};
    all.insert(all.end(), more.begin(), more.end());
    return run_expecting(code, all);
  };
  CHECK(count(plan(0, {"--strict"}).err, "[memory-over]") == 0);  // this machine has more
  CHECK(count(plan(0, {"--strict", "--gpu-memory", "1GiB"}).out, " / 1.0 GiB\n") == 2);
  CHECK(count(plan(0, {"--gpu-memory", "1GiB"}).err, "[memory-over]") == 0);
  CHECK(count(plan(0, {"--gpu-memory", "3MiB"}).err, "[memory-over]") == 1);  // a warning
  const Outcome strict = plan(3, {"--gpu-memory", "3MiB", "--strict"});
  CHECK(strict.out.starts_with("plan      wide"));  // the plan is told all the same
  CHECK(count(strict.err, "[memory-over]") == 1);
  CHECK(count(strict.err, "and run.device_memory is 3.0 MiB") == 1);
  CHECK(count(strict.err, " less") >= 2);
  const Outcome fixed =
      plan(3, {"--set", "run.device_memory=3MiB", "--strict", "--format", "json"});
  CHECK(Json::parse(fixed.out).at("ranks").size() == 2);
  CHECK(count(fixed.err, "[memory-over]") == 1);
  // what is said on the command line beats the file
  plan(0, {"--set", "run.device_memory=3MiB", "--gpu-memory", "1GiB", "--strict"});
}

TEST_CASE("plan tells what placement auto lacks of a device", "[estimate]") {
  const TempDir folder;
  const auto plan = [&](int code, const Arguments& more) {
    return run_expecting(
        code,
        joined({{"plan", write_config(folder), "--set", "parallel.gemini.placement=auto"}, more}));
  };
  const auto on = [](double bytes) {
    return Arguments{"--gpu-memory", std::to_string(static_cast<std::int64_t>(bytes))};
  };
  CHECK(count(plan(0, on(1 << 30)).err, "[memory-over]") == 0);
  const Outcome tiny = plan(0, joined({on(600 << 10), {"--format", "json"}}));
  CHECK(count(tiny.err, "warning: [memory] the plan needs ") == 1);
  CHECK(count(tiny.err, "[memory-over]") == 1);
  // All of it would fit, but not into the part that may be used.
  const double least = Json::parse(tiny.out).at("ranks").at(0).at("total");
  const Outcome warned = plan(0, on(1.05 * least));
  CHECK(warned.out.starts_with("plan      wide"));
  CHECK(count(warned.err, "what gemini may use for gathered weights on rank 0 is ") == 1);
  CHECK(count(warned.err, "[memory-over]") == 1);
  const Outcome strict = plan(3, joined({on(1.05 * least), {"--strict"}}));
  CHECK(count(strict.err, "[memory-over]") == 1);
  CHECK(count(strict.err, " less") >= 3);
}

TEST_CASE("what a plan needs of host memory is held against its own key", "[estimate]") {
  const TempDir folder;
  const auto plan = [&](int code, const std::string& size) {
    return run_expecting(code,
                         {"plan",
                          write_config(folder),
                          "--set",
                          "parallel.gemini.placement=cpu",
                          "--set",
                          "parallel.gemini.host_memory=" + size,
                          "--strict"});
  };
  plan(0, "1GiB");
  const Outcome refused = plan(3, "1MiB");
  CHECK(count(refused.err, "[memory-over]") == 1);
  CHECK(count(refused.err, "parallel.gemini.host_memory is 1.0 MiB") == 1);
  CHECK(count(refused.err, "  key   parallel.gemini.host_memory = ") == 1);
  CHECK(count(refused.err, "(--set#2") == 1);
  CHECK(count(refused.err, "run.device_memory") == 0);
}

TEST_CASE("a plan for more than this machine has is an error in strict mode", "[estimate]") {
  const TempDir folder;
  const std::string config = write_config(
      folder,
      "run: {device: cpu}\n"
      "model: {type: gpt, num_layers: 96, hidden_size: 12288, num_heads: 96, vocab_size: 50257}\n"
      "data: {type: synthetic, seq_length: 2048}\n"
      "train: {steps: 3, global_batch_size: 8, micro_batch_size: 1}\n"
      "optimizer: {type: adamw, lr: 1e-3}\n");
  run_expecting(0, {"plan", config});
  const Outcome strict = run_expecting(3, {"plan", config, "--strict"});
  CHECK(count(strict.err, "for 1 process, and this machine has") == 1);
  CHECK(count(run_expecting(0, {"estimate", config}).out, "  OOM\n") == 1);
}
