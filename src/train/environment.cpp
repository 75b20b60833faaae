// Where do the facts of env.json come from? The build, /proc and the environment.
#include "train/environment.hpp"

#include "build_info.hpp"
#include "core/error.hpp"
#include "core/system.hpp"
#include "train/commands.hpp"

#include <fmt/chrono.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <thread>
#include <unistd.h>

namespace colossal {
namespace {

/// Variables that change what a run does or where; never the whole environment, which may hold
/// secrets.
constexpr std::array kVariables = {"RANK",
                                   "WORLD_SIZE",
                                   "LOCAL_RANK",
                                   "LOCAL_WORLD_SIZE",
                                   "MASTER_ADDR",
                                   "MASTER_PORT",
                                   "OMP_NUM_THREADS",
                                   "OMP_WAIT_POLICY",
                                   "GOMP_SPINCOUNT",
                                   "MKL_NUM_THREADS",
                                   "GLOO_SOCKET_IFNAME",
                                   "CUDA_VISIBLE_DEVICES",
                                   "LD_LIBRARY_PATH",
                                   "LD_PRELOAD",
                                   "OMPI_COMM_WORLD_SIZE",
                                   "OMPI_COMM_WORLD_RANK",
                                   "PMI_SIZE",
                                   "PMI_RANK",
                                   "SLURM_JOB_ID",
                                   "SLURM_STEP_ID",
                                   "SLURM_PROCID",
                                   "SLURM_STEP_NODELIST",
                                   "SLURM_JOB_END_TIME",
                                   "COLOSSAL_FAULT"};

/// Field 22 of /proc/PID/stat: start time in clock ticks after boot; -1 if unreadable.
double start_after_boot(pid_t process) {
  std::ifstream in("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  if (!std::getline(in, line)) {
    return -1;
  }
  const std::size_t end = line.rfind(')');  // the name before it may hold spaces
  if (end == std::string::npos) {
    return -1;
  }
  std::istringstream fields(line.substr(end + 1));
  std::string field;
  constexpr int kStartTime = 22;
  constexpr int kFirstAfterName = 3;
  for (int i = kFirstAfterName; i <= kStartTime; ++i) {
    fields >> field;
  }
  return std::strtod(field.c_str(), nullptr) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double seconds_since_process_start(const LaunchOptions& launch) {
  const double start = start_after_boot(launch.mode == "spawn" ? ::getppid() : ::getpid());
  timespec now{};
  if (start < 0 || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) {
    return -1;
  }
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 - start;
}

double job_end_time() {
  const char* told = std::getenv("SLURM_JOB_END_TIME");  // NOLINT(concurrency-mt-unsafe): not set
  const std::string_view text = told == nullptr ? "" : told;
  std::int64_t seconds = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  check(error == std::errc{} && stop == text.data() + text.size() && seconds > 0,
        ErrorKind::environment,
        "job-deadline",
        "--use-job-deadline: SLURM_JOB_END_TIME {}\n  fix   start in a Slurm job that has a time "
        "limit, or set run.max_time",
        told == nullptr ? "is not set" : fmt::format("is '{}', not seconds since 1970", text));
  return static_cast<double>(seconds);
}

std::string utc_time(std::int64_t unix_seconds) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time_t{unix_seconds}));
}

std::string utc_now() {
  return utc_time(std::time(nullptr));
}

std::map<std::string, std::string> environment_variables() {
  std::map<std::string, std::string> variables;
  for (const char* name : kVariables) {
    if (const char* value = std::getenv(name)) {  // NOLINT(concurrency-mt-unsafe): never set here
      variables[name] = value;
    }
  }
  return variables;
}

std::string environment_json(const LaunchOptions& launch,
                             const std::vector<std::string>& arguments) {
  nlohmann::ordered_json json;
  json["build_id"] = build_id();
  json["versions"] = {{"colossal-train", kVersion},
                      {"torch", kTorchVersion},
                      {"hdf5", kHdf5Version},
                      {"compiler", kCompiler}};
  json["command"] = arguments;
  json["working_directory"] = std::filesystem::current_path().string();
  json["host"] = host_name();
  json["processors"] = std::thread::hardware_concurrency();
  json["launch"] = launch.mode;
  json["world_size"] = launch.world_size;
  json["started"] = utc_now();
  json["environment"] = environment_variables();
  // Paths and variables are bytes; JSON is UTF-8.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace colossal
