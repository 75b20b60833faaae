// What can be measured? One function a part; each gives its rows.
#pragma once

#include "config/config.hpp"
#include "mesh/context.hpp"
#include "train/bench/report.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {

/// Where and with what a part measures. All ranks measure the same parts in the same order.
struct BenchPlace {
  const Config& config;  ///< as step_config() gives it
  const ParallelContext& context;
  const Comm& comm;  ///< of all ranks
  DeviceTimer& timer;
  double copy_rate = 0;    ///< bytes read and written a second by a copy on the device
  Sampling sampling = {};  ///< of everything but steps
};

/// One part of `bench`.
struct BenchPart {
  std::string_view name;
  std::vector<BenchRow> (*measure)(const BenchPlace&);
};

/// All parts in their order of measurement: copy, gemm, attention, kernels, adam, collectives,
/// step.
[[nodiscard]] std::span<const BenchPart> bench_parts();

/// Copies on the device; with a GPU also from and to pinned host memory.
[[nodiscard]] std::vector<BenchRow> bench_copy(const BenchPlace& place);
/// What a copy of much memory on the device reads and writes a second.
[[nodiscard]] double measure_copy_rate(const BenchPlace& place);
/// One update of the configured optimizer, over as many elements as make it leave the caches.
[[nodiscard]] std::vector<BenchRow> bench_adam(const BenchPlace& place);
/// Collectives over all ranks, small to large; the rate is that of the busiest link of a ring.
/// Errors: usage "bench-one-process" in a world of one.
[[nodiscard]] std::vector<BenchRow> bench_collectives(const BenchPlace& place);
/// Whole training steps, after three of warm-up. Collective.
[[nodiscard]] std::vector<BenchRow> bench_step(const BenchPlace& place);

/// `config` for `steps` measured steps on synthetic data: what a run would compute, without its
/// files, evaluations and schedule.
[[nodiscard]] Config step_config(Config config, std::int64_t steps);

}  // namespace colossal
