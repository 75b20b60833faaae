// Where do the facts about a machine come from? /proc, /sys and system calls; nothing is changed.
#include "train/host_facts.hpp"

#include "build_info.hpp"
#include "train/environment.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <sched.h>
#include <sstream>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace colossal {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

/// The text behind "KEY :" in a file of such lines, as /proc/cpuinfo and /proc/meminfo are.
std::string entry(const fs::path& file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (line.starts_with(key) && colon != std::string::npos) {
      const std::size_t start = line.find_first_not_of(" \t", colon + 1);
      return start == std::string::npos ? "" : line.substr(start);
    }
  }
  return "";
}

/// "16384 kB" of /proc/meminfo in bytes; -1 if absent.
std::int64_t meminfo_bytes(const std::string& key) {
  const std::string text = entry("/proc/meminfo", key);
  return text.empty() ? -1 : std::atoll(text.c_str()) * 1024;
}

void read_processor(HostFacts& facts) {
  facts.processor = entry("/proc/cpuinfo", "model name");
  cpu_set_t usable;
  CPU_ZERO(&usable);
  facts.usable_cores = ::sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : 1;
  facts.cores = std::max<std::int64_t>(std::thread::hardware_concurrency(), facts.usable_cores);
  std::istringstream quota(first_line("/sys/fs/cgroup/cpu.max"));  // "200000 100000" or "max ..."
  double used = 0;
  double period = 0;
  if (quota >> used >> period && period > 0) {
    facts.quota_cores = used / period;
  }
  // The order in which target_clones chooses.
  facts.instructions = __builtin_cpu_supports("avx512f") != 0 ? "avx512f"
                       : __builtin_cpu_supports("avx2") != 0  ? "avx2"
                                                              : "default";
}

/// Of the control group; kUnlimited if it has none.
std::int64_t memory_limit() {
  const std::string limit = first_line("/sys/fs/cgroup/memory.max");
  return limit.empty() || limit == "max" ? HostFacts::kUnlimited : std::atoll(limit.c_str());
}

void read_memory(HostFacts& facts) {
  facts.memory_bytes = meminfo_bytes("MemTotal");
  facts.available_bytes = meminfo_bytes("MemAvailable");
  facts.memory_limit_bytes = memory_limit();
  struct statvfs volume{};
  if (::statvfs("/dev/shm", &volume) == 0) {
    facts.shared_memory_bytes =
        static_cast<std::int64_t>(volume.f_bavail) * static_cast<std::int64_t>(volume.f_frsize);
  }
}

std::int64_t soft_limit(__rlimit_resource_t resource) {
  rlimit limit{};
  ::getrlimit(resource, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? HostFacts::kUnlimited
                                         : static_cast<std::int64_t>(limit.rlim_cur);
}

void read_limits(HostFacts& facts) {
  facts.open_files = soft_limit(RLIMIT_NOFILE);
  facts.processes = soft_limit(RLIMIT_NPROC);
  facts.file_bytes = soft_limit(RLIMIT_FSIZE);
}

void read_torch(HostFacts& facts) {
  facts.torch_built = kTorchVersion;
  Dl_info library{};
  const auto inside = &at::get_num_threads;  // any function of libtorch_cpu
  if (::dladdr(reinterpret_cast<const void*>(inside), &library) == 0) {
    return;
  }
  facts.torch_library = library.dli_fname;
  std::ifstream in(fs::path(library.dli_fname).parent_path().parent_path() / "version.py");
  for (std::string line; std::getline(in, line);) {
    const std::size_t start = line.find('\'');
    if (line.starts_with("__version__") && start != std::string::npos) {
      facts.torch_version = line.substr(start + 1, line.rfind('\'') - start - 1);
    }
  }
}

std::int64_t count_gpus() {
  std::error_code none;
  const fs::directory_iterator entries("/proc/driver/nvidia/gpus", none);
  return none ? 0 : std::distance(entries, fs::directory_iterator());
}

void read_folders(HostFacts& facts) {
  std::error_code error;
  facts.output = fs::current_path(error).string();
  facts.output_writable = ::access(facts.output.c_str(), W_OK) == 0;
  const fs::space_info space = fs::space(facts.output, error);
  facts.output_free_bytes = error ? -1 : static_cast<std::int64_t>(space.available);
  const fs::path temporary = fs::temp_directory_path(error);
  facts.temporary = temporary.empty() ? "$TMPDIR" : temporary.string();
  facts.temporary_writable = !error && ::access(temporary.c_str(), W_OK) == 0;
}

}  // namespace

std::int64_t usable_memory() {
  return std::max<std::int64_t>(0, std::min(meminfo_bytes("MemTotal"), memory_limit()));
}

HostFacts read_host_facts() {
  HostFacts facts;
  utsname system{};
  ::uname(&system);
  facts.system = fmt::format("{} {} {}", system.sysname, system.release, system.machine);
  read_processor(facts);
  read_memory(facts);
  facts.num_gpus = count_gpus();
  facts.gpus = survey_gpus();
  read_torch(facts);
  facts.hdf5 = hdf5_info();
  read_limits(facts);
  facts.clock_source =
      first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  facts.unix_seconds = static_cast<std::int64_t>(unix_time());
  read_folders(facts);
  detail::read_network(facts);
  detail::read_environment(facts);
  return facts;
}

}  // namespace colossal
