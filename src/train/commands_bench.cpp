// What does `bench` do? Builds what a run would build, and times its pieces.
#include "train/commands_bench.hpp"

#include "comm/launch.hpp"
#include "config/load.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "mesh/device.hpp"
#include "train/bench/parts.hpp"
#include "train/commands_config.hpp"
#include "train/startup.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <string_view>
#include <utility>

namespace colossal {
namespace {

/// What is measured without --config: small enough for two cores.
constexpr std::string_view kCpuModel = R"(version: 1
run: {name: bench, device: cpu}
model: {type: gpt, num_layers: 4, hidden_size: 256, num_heads: 8, vocab_size: 4096}
data: {type: synthetic, seq_length: 256}
train: {steps: 1, micro_batch_size: 4, clip_grad_norm: 1.0}
optimizer: {type: adamw, lr: 1e-4, weight_decay: 0.1}
)";

/// The same on a GPU: GPT-2's smallest size at 32 thousand tokens.
constexpr std::string_view kGpuModel = R"(version: 1
run: {name: bench, device: cuda}
model: {type: gpt, preset: gpt2-124m}
data: {type: synthetic, seq_length: 1024}
train: {steps: 1, micro_batch_size: 32, clip_grad_norm: 1.0, precision: bf16}
optimizer: {type: adamw, lr: 1e-4, weight_decay: 0.1}
)";

/// Whether `run.device: auto` would compute on a GPU here.
bool has_gpu(const LaunchOptions& launch) {
  return choose_device(DeviceKind::automatic, survey_gpus(), launch).device.is_cuda();
}

/// The configuration for so many processes; empty if it has errors, which are printed if asked.
std::optional<Loaded> load_for(const BenchOptions& options,
                               const LaunchOptions& launch,
                               int processes,
                               bool print) {
  LoadOptions load = load_options(options.config, processes);
  load.run_time = "bench";  // nothing is named by it here, and all ranks must read the same
  load.world_origin = options.nproc ? "--nproc " + *options.nproc : launch.origin;
  if (!options.config.config.empty()) {
    return load_or_report(options.config.config, load, print);
  }
  const std::string text(has_gpu(launch) ? kGpuModel : kCpuModel);
  return accept_or_report(load_text(text, "<model of bench>", load), print);
}

/// The parts to measure, in the order of bench_parts().
std::vector<BenchPart> parts_of(const BenchOptions& options, const Config& config, int processes) {
  std::vector<BenchPart> chosen;
  for (const BenchPart& part : bench_parts()) {
    const bool of_model = part.name == "gemm" || part.name == "attention" || part.name == "kernels";
    const bool sensible = part.name == "collectives"
                              ? processes > 1
                              : !of_model || config.model.type == ModelType::gpt;
    const bool asked = std::ranges::find(options.parts, part.name) != options.parts.end();
    if (options.parts.empty() ? sensible : asked) {
      chosen.push_back(part);
    }
  }
  return chosen;
}

int measure_all(const BenchOptions& options, const Config& config, World& world) {
  const ParallelContext context(config, world);
  const std::unique_ptr<DeviceTimer> timer = make_device_timer(world.device());
  BenchPlace place{.config = config, .context = context, .comm = world.comm(), .timer = *timer};
  const std::vector<BenchPart> parts = parts_of(options, config, world.size());
  if (std::ranges::any_of(parts, [](const BenchPart& part) {
        return part.name == "kernels" || part.name == "adam";
      })) {
    place.copy_rate = measure_copy_rate(place);
  }
  BenchReport report{.build = build_id(),
                     .device = describe_device(world.device()),
                     .precision = yaml_word(config.train.precision),
                     .threads = at::get_num_threads(),
                     .processes = world.size(),
                     .rows = {}};
  for (const BenchPart& part : parts) {
    world.set_phase(fmt::format("bench {}", part.name));
    std::vector<BenchRow> rows = part.measure(place);
    std::ranges::move(rows, std::back_inserter(report.rows));
  }
  if (world.rank() == 0) {
    fmt::print("{}", options.json ? to_json(report) : to_text(report));
  }
  return 0;
}

int run_rank(const BenchOptions& options, const LaunchOptions& launch) {
  const std::optional<Loaded> loaded = load_for(options, launch, launch.world_size, speaks(launch));
  if (!loaded) {
    return kConfigExit;
  }
  const Config config = step_config(loaded->config, options.steps);
  log::configure({.level = log_level(config.logging.level), .rank = launch.rank, .folder = {}});
  return run_connected(
      config, launch, [&](World& world) { return measure_all(options, config, world); });
}

}  // namespace

std::vector<std::string> bench_part_names() {
  std::vector<std::string> names;
  for (const BenchPart& part : bench_parts()) {
    names.emplace_back(part.name);
  }
  return names;
}

int run_bench(const BenchOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);
  const LaunchOptions launch = detect_launch();
  if (!options.nproc) {
    return run_rank(options, launch);
  }
  refuse_nested_launch(launch);
  const int processes = num_processes(*options.nproc, 0, std::ssize(survey_gpus().gpus));
  if (processes == 1) {
    return run_rank(options, launch);
  }
  if (!load_for(options, launch, processes, true)) {
    return kConfigExit;
  }
  return launch_local({.num_processes = processes, .arguments = without_nproc(options.arguments)})
      .exit_code;
}

}  // namespace colossal
