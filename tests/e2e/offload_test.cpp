// Does a run use host memory and disk as it was told, and does it say early what cannot be?
#include "e2e/program.hpp"

#include <fmt/format.h>

#include <csignal>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <unistd.h>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

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

/// Weights, masters and gradients on the device, states on disk.
Arguments on_device_and_disk(const std::string& host, const std::string& nvme) {
  return {"--set",
          "parallel.gemini={placement: cuda, chunk_size: 64KiB, host_memory: " + host +
              ", nvme: {" + nvme + "}}",
          "--set",
          "parallel.zero.prefetch=0"};
}

/// Files that this process and its children write end here, as on a full disk, until the end of the
/// scope.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t most) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit lower{most, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &lower);
  }
  ~SmallFiles() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;

 private:
  rlimit before_{};
};

std::string bytes(double number) {
  return fmt::format("{}", static_cast<std::int64_t>(number));
}

}  // namespace

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

TEST_CASE("placement auto trains where a static offload fails with host memory to spare",
          "[memory]") {
  const TempDir folder;
  Arguments narrow;
  for (const char* set : {"train.precision=bf16", "model.num_layers=12", "train.steps=3"}) {
    narrow.insert(narrow.end(), {"--set", set});
  }
  run_expecting(0, train_deep(folder.path() / "free", narrow));
  const Outcome plan = run_expecting(
      0, {"plan", (folder.path() / "free" / "config.resolved.yaml").string(), "--format", "json"});
  const double parameters = Json::parse(plan.out).at("parameters");
  // As large as the 16-bit weights, which stage 2 holds whole and all the time: no room for
  // activations, and host memory without a limit does not help. Placement auto has that device and
  // little more host memory than masters, gradients, states and weights take.
  const double device = 2 * parameters;
  for (const int processes : {1, 2}) {
    INFO(processes << " processes");
    const Arguments both =
        with_device(device, joined({narrow, {"--nproc", std::to_string(processes)}}));
    const Outcome refused = run_expecting(
        6,
        train_deep(folder.path() / ("zero" + std::to_string(processes)),
                   joined({both, {"--set", "parallel.zero={stage: 2, offload: optimizer}"}})));
    CHECK(times_told(refused, "[out-of-memory]") >= 1);
    CHECK(count(refused.err, "step  1/") == 0);
    const double host = 17 * parameters / processes;
    const fs::path run_dir = folder.path() / ("auto" + std::to_string(processes));
    const Json summary = last_line(run_expecting(
        0,
        train_deep(run_dir,
                   joined({both,
                           {"--set",
                            "parallel.gemini={placement: auto, chunk_size: 64KiB, host_memory: " +
                                bytes(host) + "}"}}))));
    INFO(summary.dump());
    CHECK(summary.at("device_peak").get<double>() <= device);
    CHECK(summary.at("host_peak").get<double>() <= host);
    // in bf16 the order of sums over ranks shows
    require_same_losses(folder.path() / "free", run_dir, processes == 1 ? 0 : 1e-3);
  }
}

TEST_CASE("with states on disk a device needs host memory for their buffers alone", "[memory]") {
  const TempDir folder;
  const Arguments deeper = {"--set", "model.num_layers=12"};
  run_expecting(0, train_deep(folder.path() / "free", deeper));
  const Outcome plan = run_expecting(
      0, {"plan", (folder.path() / "free" / "config.resolved.yaml").string(), "--format", "json"});
  const double parameters = Json::parse(plan.out).at("parameters");
  // Adam's states are 8 bytes a parameter; with weights and gradients 16.
  const double host = 1.5 * parameters;
  const double device = 11 * parameters;
  for (const char* processes : {"1", "2"}) {
    INFO(processes << " processes");
    const std::string name = std::string("disk") + processes;
    const Outcome outcome = run_expecting(
        0,
        train_deep(folder.path() / name,
                   with_device(device,
                               joined({deeper,
                                       {"--nproc", processes},
                                       on_device_and_disk(
                                           bytes(host),
                                           "path: " + (folder.path() / "states").string())}))));
    require_same_losses(folder.path() / "free", folder.path() / name, 5e-5);
    const Json summary = last_line(outcome);
    INFO(summary.dump());
    CHECK(summary.at("device_peak").get<double>() <= device);
    CHECK(summary.at("host_peak").get<double>() <= host);
    CHECK(summary.at("host_peak").get<double>() > 0);
    const double share = 8 * parameters / std::stod(processes);
    CHECK(summary.at("nvme_peak").get<double>() == Approx(share).epsilon(0.05));
  }
  const Outcome refused =
      run_expecting(6,
                    train_deep(folder.path() / "host",
                               with_device(device, joined({deeper, in_host_memory(bytes(host))}))));
  CHECK(times_told(refused, "[host-memory]") == 1);
}

TEST_CASE("a folder that cannot hold states ends a run before its first step", "[memory]") {
  const TempDir folder;
  write_file(folder.path() / "file", "no folder");
  struct Case {
    std::string nvme;
    std::string id;
    std::string text;
    rlim_t largest_file = RLIM_INFINITY;
  };
  const std::string disk = "path: " + (folder.path() / "states").string();
  const std::vector<Case> cases = {
      {"path: " + (folder.path() / "file" / "states").string(), "nvme-path", "cannot write"},
      {"path: /proc/colossal", "nvme-path", "cannot write /proc/colossal"},
      {disk + ", limit: 4KiB", "nvme-limit", "nvme.limit is 4096 bytes"},
      {disk, "nvme-space", "File too large", 1U << 19U}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    for (const char* processes : {"1", "2"}) {
      INFO(cases[i].nvme << " on " << processes);
      const fs::path run_dir = folder.path() / fmt::format("{}-{}", i, processes);
      const SmallFiles limit(cases[i].largest_file);
      const Outcome outcome = run_expecting(
          3,
          train_deep(run_dir,
                     joined({{"--nproc", processes}, on_device_and_disk("auto", cases[i].nvme)})),
          {.ignored = {SIGXFSZ}});
      INFO(outcome.err);
      const int told = times_told(outcome, "[" + cases[i].id + "]");
      CHECK(told >= 1);
      CHECK(told <= std::stoi(processes));  // each rank has a file of its own, of its own size
      CHECK(count(outcome.err, cases[i].text) >= 1);
      CHECK(count(outcome.err, "fix   ") >= 1);
      CHECK(count(outcome.err, "step  1") == 0);
      CHECK(Json::parse(read_file(run_dir / "status.json")).at("exit") == 3);
      CHECK_FALSE(fs::exists(run_dir / "checkpoints" / "latest"));
    }
  }
}

TEST_CASE("a folder for states that is in host memory is used with a warning", "[memory]") {
  struct statfs volume{};
  if (::statfs("/dev/shm", &volume) != 0 || volume.f_type != TMPFS_MAGIC) {
    WARN("no tmpfs at /dev/shm: not tested");
    return;
  }
  const TempDir folder;
  const fs::path states = fmt::format("/dev/shm/colossal-states-{}", ::getpid());
  const Outcome outcome = run_expecting(
      0,
      train_deep(
          folder.path() / "run",
          joined({{"--nproc", "2"}, on_device_and_disk("auto", "path: " + states.string())})));
  CHECK(count(outcome.err, "[nvme-tmpfs]") >= 1);
  CHECK(fs::is_empty(states));  // the files have no names
  fs::remove(states);
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
    const Outcome failed = run_expecting(9, train("run"), with_fault(fault));
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
