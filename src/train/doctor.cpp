// When is a fact about a machine bad, and what helps? One small function a topic.
#include "train/doctor.hpp"

#include "build_info.hpp"
#include "core/error.hpp"
#include "mesh/device.hpp"
#include "train/commands.hpp"
#include "train/environment.hpp"
#include "train/human.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace colossal {
namespace {

std::string size(std::int64_t bytes) {
  return bytes < 0                        ? "unknown"
         : bytes == HostFacts::kUnlimited ? "unlimited"
         : bytes < kGiB                   ? fmt::format("{} MiB", bytes / kMiB)
                                          : human_gib(static_cast<double>(bytes));
}

std::string count(std::int64_t limit) {
  return limit == HostFacts::kUnlimited ? "unlimited" : thousands(limit);
}

/// `fix` is kept only by a finding that is not ok.
Finding finding(const char* topic, Verdict verdict, std::string detail, std::string fix) {
  return {
      topic, verdict, std::move(detail), verdict == Verdict::ok ? std::string() : std::move(fix)};
}

Finding check_program(const HostFacts& facts) {
  return finding(
      "program",
      Verdict::ok,
      fmt::format(
          "colossal-train {}, {}, on {} ({})", build_id(), kCompiler, facts.host, facts.system),
      "");
}

Finding check_torch(const HostFacts& facts) {
  const bool same = facts.torch_version.empty() || facts.torch_version == facts.torch_built;
  return finding(
      "torch",
      same ? Verdict::ok : Verdict::fail,
      fmt::format("built with {}, runs with {} ({})",
                  facts.torch_built,
                  facts.torch_version.empty() ? "an unknown version" : facts.torch_version,
                  facts.torch_library),
      "unset LD_LIBRARY_PATH, or build again: scripts/train.sh does");
}

Finding check_hdf5(const HostFacts& facts) {
  const Hdf5Info& info = facts.hdf5;
  const bool old = info.version.starts_with("1.8.");
  const Verdict verdict = old ? Verdict::fail : info.same_as_built ? Verdict::ok : Verdict::warn;
  return finding("hdf5",
                 verdict,
                 fmt::format("{} (built with {}), virtual datasets {}, thread-safe {}, deflate {}",
                             info.version,
                             info.built_version,
                             old ? "no" : "yes",
                             info.thread_safe ? "yes" : "no",
                             info.deflate ? "yes" : "no"),
                 "use the HDF5 that the program was built with, 1.10 or newer");
}

Finding check_processor(const HostFacts& facts) {
  const auto share = static_cast<double>(facts.usable_cores);
  const bool throttled = facts.quota_cores > 0 && facts.quota_cores < share;
  const bool pinned = facts.usable_cores < facts.cores;
  std::string detail = fmt::format("{}, {} of {} cores usable, kernels for {}",
                                   facts.processor.empty() ? "unknown" : facts.processor,
                                   facts.usable_cores,
                                   facts.cores,
                                   facts.instructions);
  if (throttled) {
    detail += fmt::format(", a quota of {:.1f} cores", facts.quota_cores);
  }
  std::string fix;
  if (throttled || pinned) {
    fix = fmt::format(
        "set run.threads so that threads x processes is {} or less",
        std::max<std::int64_t>(
            1, throttled ? static_cast<std::int64_t>(facts.quota_cores) : facts.usable_cores));
  } else {
    fix = "kernels run several times slower without AVX2: use a newer processor";
  }
  const bool slow = facts.instructions == "default";
  return finding("cpu", throttled || pinned || slow ? Verdict::warn : Verdict::ok, detail, fix);
}

Finding check_memory(const HostFacts& facts) {
  const std::int64_t usable =
      std::min(facts.available_bytes < 0 ? HostFacts::kUnlimited : facts.available_bytes,
               facts.memory_limit_bytes);
  const Verdict verdict = usable < kGiB / 2   ? Verdict::fail
                          : usable < 2 * kGiB ? Verdict::warn
                                              : Verdict::ok;
  return finding("memory",
                 verdict,
                 fmt::format("{} of {} available, limit of this control group {}",
                             size(facts.available_bytes),
                             size(facts.memory_bytes),
                             size(facts.memory_limit_bytes)),
                 "close other programs or raise the limit; `plan` tells what a run needs");
}

Finding check_gpus(const HostFacts& facts) {
  if (facts.gpus.built_for == 0) {
    return finding(
        "gpu",
        Verdict::ok,
        facts.num_gpus == 0
            ? "none"
            : fmt::format("{} present, unused: this build trains on CPUs", facts.num_gpus),
        "");
  }
  try {  // as the first rank of this host would be given one
    const DeviceChoice choice = choose_device(DeviceKind::cuda, facts.gpus, {});
    return finding("gpu",
                   Verdict::ok,
                   fmt::format("{} usable, the first is {} with {}",
                               facts.gpus.gpus.size(),
                               choice.gpu.name,
                               size(choice.gpu.bytes)),
                   "");
  } catch (const Error& error) {
    const std::string text = error.what();
    const std::size_t fix = text.find("\n  fix   ");
    return finding("gpu",
                   Verdict::warn,
                   text.substr(0, fix),
                   fix == std::string::npos ? std::string() : text.substr(fix + 9));
  }
}

Finding check_limits(const HostFacts& facts) {
  constexpr std::int64_t kFewFiles = 256;
  constexpr std::int64_t kGoodFiles = 1024;
  constexpr std::int64_t kGoodProcesses = 512;
  const bool small_files = facts.file_bytes < kGiB;
  const bool few = facts.open_files < kGoodFiles || facts.processes < kGoodProcesses;
  const Verdict verdict = facts.open_files < kFewFiles ? Verdict::fail
                          : few || small_files         ? Verdict::warn
                                                       : Verdict::ok;
  return finding("limits",
                 verdict,
                 fmt::format("open files {}, processes {}, file size {}",
                             count(facts.open_files),
                             count(facts.processes),
                             size(facts.file_bytes)),
                 "before the start: ulimit -n 4096; ulimit -u unlimited; ulimit -f unlimited");
}

Finding check_shared_memory(const HostFacts& facts) {
  const bool known = facts.shared_memory_bytes >= 0;
  const bool small = known && facts.shared_memory_bytes < 64 * kMiB;
  return finding("shm",
                 small || !known ? Verdict::warn : Verdict::ok,
                 known ? fmt::format("{} free in /dev/shm", size(facts.shared_memory_bytes))
                       : "there is no /dev/shm",
                 "containers: --shm-size=1g");
}

Finding check_clock(const HostFacts& facts) {
  constexpr std::int64_t kYear2025 = 1'735'689'600;
  const bool wrong = facts.unix_seconds < kYear2025;
  const bool slow = facts.clock_source == "hpet" || facts.clock_source == "acpi_pm" ||
                    facts.clock_source == "jiffies" || facts.clock_source == "refined-jiffies";
  return finding("clock",
                 wrong || slow ? Verdict::warn : Verdict::ok,
                 fmt::format("{} (source {})",
                             wrong ? fmt::format("{} s since 1970: it is wrong", facts.unix_seconds)
                                   : utc_time(facts.unix_seconds),
                             facts.clock_source.empty() ? "unknown" : facts.clock_source),
                 wrong ? "set the clock: logs and checkpoints carry its time"
                       : "each look at this clock takes microseconds; prefer tsc or kvm-clock");
}

Finding check_ports(const HostFacts& facts) {
  const bool narrow = facts.last_port > 0 && facts.last_port - facts.first_port < 1000;
  const Verdict verdict = !facts.port_problem.empty()      ? Verdict::fail
                          : narrow || !facts.host_resolves ? Verdict::warn
                                                           : Verdict::ok;
  std::string fix = "processes talk over 127.0.0.1: bring up the loopback interface";
  if (facts.port_problem.empty()) {
    fix = narrow ? "widen net.ipv4.ip_local_port_range: every pair of processes takes a port"
                 : fmt::format("runs on several hosts need an address for {}: add it to /etc/hosts",
                               facts.host);
  }
  return finding(
      "ports",
      verdict,
      fmt::format("{}, {} to {}; host name {}",
                  facts.port_problem.empty() ? std::string("free")
                                             : "none to be had on 127.0.0.1: " + facts.port_problem,
                  facts.first_port,
                  facts.last_port,
                  facts.host_resolves ? "resolves" : "has no address"),
      fix);
}

Finding check_folders(const HostFacts& facts) {
  const bool writable = facts.output_writable && facts.temporary_writable;
  const bool full = facts.output_free_bytes >= 0 && facts.output_free_bytes < 2 * kGiB;
  return finding("disk",
                 !writable ? Verdict::fail
                 : full    ? Verdict::warn
                           : Verdict::ok,
                 fmt::format("{} free in {} ({}writable), temporary files in {} ({}writable)",
                             size(facts.output_free_bytes),
                             facts.output,
                             facts.output_writable ? "" : "not ",
                             facts.temporary,
                             facts.temporary_writable ? "" : "not "),
                 writable ? "free some space, or choose another volume with --output-dir"
                          : "choose other folders with --output-dir and TMPDIR");
}

/// A thread count that does not fit the machine; empty if it does.
std::string thread_trouble(const HostFacts& facts, const char* variable) {
  const auto found = facts.environment.find(variable);
  if (found == facts.environment.end()) {
    return "";
  }
  char* end = nullptr;
  const long threads = std::strtol(found->second.c_str(), &end, 10);
  if (end == found->second.c_str() || *end != '\0' || threads < 1) {
    return fmt::format("{}='{}' is no number of threads", variable, found->second);
  }
  return threads > facts.usable_cores
             ? fmt::format("{}={} exceeds {} cores", variable, threads, facts.usable_cores)
             : "";
}

Finding check_environment(const HostFacts& facts) {
  std::string set;
  for (const auto& [variable, value] : facts.environment) {
    set += fmt::format("{}{}={}", set.empty() ? "" : " ", variable, value);
  }
  const std::string detail = set.empty() ? "nothing set" : set;
  if (!facts.launch_problem.empty()) {
    return finding("environment",
                   Verdict::fail,
                   detail + ": " + facts.launch_problem,
                   "unset RANK and WORLD_SIZE, or start with torchrun");
  }
  if (!facts.interface_known) {
    return finding("environment",
                   Verdict::fail,
                   detail + ": no such network interface",
                   "set GLOO_SOCKET_IFNAME to one that `ip link` lists, or unset it");
  }
  for (const char* variable : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}) {
    const std::string trouble = thread_trouble(facts, variable);
    if (!trouble.empty()) {
      return finding("environment",
                     Verdict::warn,
                     detail + ": " + trouble,
                     fmt::format("unset {}: run.threads decides", variable));
    }
  }
  return finding("environment",
                 facts.environment.contains("COLOSSAL_FAULT") ? Verdict::warn : Verdict::ok,
                 detail,
                 "unset COLOSSAL_FAULT: it makes runs fail on purpose");
}

}  // namespace

std::string_view name(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::ok:
      return "ok";
    case Verdict::warn:
      return "warn";
    case Verdict::fail:
      break;
  }
  return "fail";
}

std::vector<Finding> judge(const HostFacts& facts) {
  constexpr std::array kChecks = {check_program,
                                  check_torch,
                                  check_hdf5,
                                  check_processor,
                                  check_memory,
                                  check_gpus,
                                  check_limits,
                                  check_shared_memory,
                                  check_clock,
                                  check_ports,
                                  check_folders,
                                  check_environment};
  std::vector<Finding> findings;
  for (const auto check_topic : kChecks) {
    findings.push_back(check_topic(facts));
  }
  return findings;
}

std::string to_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text +=
        fmt::format("{:<4}  {:<12}  {}\n", name(finding.verdict), finding.topic, finding.detail);
    if (!finding.fix.empty()) {
      text += fmt::format("      {:<12}  fix: {}\n", "", finding.fix);
    }
  }
  const auto having = [&](Verdict verdict) {
    return std::ranges::count(findings, verdict, &Finding::verdict);
  };
  return text + fmt::format("{} ok, {} warn, {} fail\n",
                            having(Verdict::ok),
                            having(Verdict::warn),
                            having(Verdict::fail));
}

std::string to_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"topic", finding.topic},
                    {"verdict", name(finding.verdict)},
                    {"detail", finding.detail},
                    {"fix", finding.fix}});
  }
  const nlohmann::ordered_json json = {{"verdict", name(worst(findings))}, {"findings", list}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Verdict worst(const std::vector<Finding>& findings) {
  Verdict verdict = Verdict::ok;
  for (const Finding& finding : findings) {
    verdict = std::max(verdict, finding.verdict);
  }
  return verdict;
}

}  // namespace colossal
