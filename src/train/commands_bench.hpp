// What can be said to the command that measures this machine: bench?
#pragma once

#include "train/commands.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace colossal {

/// Command line of `bench`.
struct BenchOptions {
  std::vector<std::string> parts;    ///< of bench_part_names(); empty: all that make sense here
  ConfigOptions config;              ///< its `config` may be empty: a gpt that suits the device
  std::optional<std::string> nproc;  ///< "auto" or a number
  std::int64_t steps = 20;           ///< measured by the part `step`
  bool json = false;
  std::vector<std::string> arguments;  ///< argv[1..], for re-execution by --nproc
};

/// Names of the parts in their order of measurement.
[[nodiscard]] std::vector<std::string> bench_part_names();

/// Prints what operations, collectives and steps take on this machine; no files, no data. Returns
/// the exit code. Errors: usage "bench-model", "bench-one-process", "bad-nproc"; those of a run.
int run_bench(const BenchOptions& options);

}  // namespace colossal
