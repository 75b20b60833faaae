// What is this machine, as far as it matters to a run?
#pragma once

#include "checkpoint/hdf5_info.hpp"
#include "mesh/device.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace colossal {

/// Facts that `doctor` judges, read without changing anything. Byte counts are -1 where the system
/// does not tell, and kUnlimited where it sets no limit.
struct HostFacts {
  static constexpr std::int64_t kUnlimited = INT64_MAX;

  std::string host;
  bool host_resolves = true;  ///< to an address; ranks of several hosts find each other by it
  std::string system;         ///< "Linux 6.1.0 x86_64"
  std::string processor;
  std::int64_t cores = 0;         ///< of the machine
  std::int64_t usable_cores = 0;  ///< that this process may run on
  double quota_cores = 0;         ///< processor time that its control group gets; 0: all of it
  std::string instructions;       ///< which copy of our kernels runs: "avx512f", "avx2", "default"
  std::int64_t memory_bytes = -1;
  std::int64_t available_bytes = -1;
  std::int64_t memory_limit_bytes = kUnlimited;  ///< of the control group
  std::int64_t num_gpus = 0;                     ///< of the machine
  GpuSurvey gpus;                                ///< what this program sees of them
  std::string torch_library;                     ///< the file that is loaded
  std::string torch_version;  ///< of the package it lies in; empty if it lies in none
  std::string torch_built;    ///< of the package this program was built with
  Hdf5Info hdf5;
  std::int64_t open_files = kUnlimited;  ///< soft limits of this process
  std::int64_t processes = kUnlimited;
  std::int64_t file_bytes = kUnlimited;
  std::int64_t shared_memory_bytes = -1;  ///< free in /dev/shm
  std::string clock_source;               ///< of the kernel; empty if it does not tell
  std::int64_t unix_seconds = 0;
  int first_port = 0;  ///< range from which the system gives ports
  int last_port = 0;
  std::string port_problem;  ///< why no port on 127.0.0.1 can be had; empty if one can
  std::string output;        ///< the working directory: runs/ lies there
  std::int64_t output_free_bytes = -1;
  bool output_writable = true;
  std::string temporary;  ///< folder for temporary files
  bool temporary_writable = true;
  std::map<std::string, std::string> environment;  ///< variables that matter, those that are set
  std::string launch_problem;   ///< why the launcher's variables do not fit together; or empty
  bool interface_known = true;  ///< false: GLOO_SOCKET_IFNAME names none of this host
};

/// Looks at this machine and this process.
[[nodiscard]] HostFacts read_host_facts();

/// Bytes that all processes of this machine, or of its control group, can have; 0: unknown.
[[nodiscard]] std::int64_t usable_memory();

namespace detail {
/// Host name, ports.
void read_network(HostFacts& facts);
/// Environment variables, what is wrong with those of a launcher.
void read_environment(HostFacts& facts);
}  // namespace detail

}  // namespace colossal
