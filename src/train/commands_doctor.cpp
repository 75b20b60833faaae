// What does `doctor` do? Judges the machine, then lets real processes sum a tensor.
#include "comm/launch.hpp"
#include "comm/world.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/system.hpp"
#include "train/commands.hpp"
#include "train/doctor.hpp"
#include "train/startup.hpp"
#include "train/stopwatch.hpp"

#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace colossal {
namespace {

constexpr std::int64_t kNumbers = std::int64_t{16} << 20;  // 64 MiB of fp32
constexpr int kRounds = 5;
constexpr int kDefaultProcesses = 2;

/// Median seconds of all-reduces of `count` numbers; `correct` becomes false if a sum is wrong.
double time_all_reduce(const Comm& comm, std::int64_t count, bool& correct) {
  const auto mine = static_cast<float>(comm.rank() + 1);
  const auto wanted = static_cast<float>(comm.size() * (comm.size() + 1) / 2);
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) {
    at::Tensor numbers = at::full({count}, mine, at::kFloat);
    comm.barrier();
    const Stopwatch watch;
    comm.all_reduce(numbers).wait();
    seconds.push_back(watch.seconds());
    const auto* sums = numbers.const_data_ptr<float>();
    correct = correct && std::all_of(sums, sums + count, [&](float sum) { return sum == wanted; });
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRounds / 2, seconds.end());
  return seconds[kRounds / 2];
}

/// One process of the test. Rank 0 leaves the result in `file`.
int run_probe(const std::string& file) {
  const LaunchOptions launch = detect_launch();
  Config config;
  config.run.threads = 1;
  config.run.device = DeviceKind::cpu;
  constexpr double kPatienceSeconds = 60;
  config.parallel.comm = {.init_timeout_seconds = kPatienceSeconds,
                          .timeout_seconds = kPatienceSeconds};
  log::configure({.level = log::Level::warn, .rank = launch.rank, .folder = {}});
  return run_connected(config, launch, [&](World& world) {
    NetworkTest test{.num_ranks = world.size(),
                     .bytes = kNumbers * static_cast<std::int64_t>(sizeof(float)),
                     .correct = true};
    test.seconds = time_all_reduce(world.comm(), kNumbers, test.correct);
    test.latency_seconds = time_all_reduce(world.comm(), 1, test.correct);
    if (world.rank() == 0) {
      std::ofstream(file) << to_json(test);
    }
    return 0;
  });
}

/// Starts the processes and waits for their result.
Finding check_network(int num_processes) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("colossal-doctor-{}.json", ::getpid());
  const LaunchOutcome outcome =
      launch_local({.num_processes = num_processes,
                    .arguments = {"colossal-train", "doctor", "--probe", file.string()}});
  const std::string test = read_text(file);
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
  return judge_network(num_processes, outcome.exit_code, test);
}

}  // namespace

int run_doctor(const DoctorOptions& options) {
  if (options.probe) {
    return run_probe(*options.probe);
  }
  const int processes =
      options.nproc ? num_processes(*options.nproc, kDefaultProcesses) : kDefaultProcesses;
  const HostFacts facts = read_host_facts();
  std::vector<Finding> findings = judge(facts);
  if (facts.temporary_writable) {
    findings.push_back(check_checkpoints());
    findings.push_back(check_network(processes));
  }
  fmt::print("{}", options.json ? to_json(findings) : to_text(findings));
  return worst(findings) == Verdict::fail ? static_cast<int>(ErrorKind::environment) : 0;
}

}  // namespace colossal
