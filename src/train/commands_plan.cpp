// What do the commands do that plan and start no ranks: plan, estimate?
#include "config/explain.hpp"
#include "config/load.hpp"
#include "core/error.hpp"
#include "train/commands.hpp"
#include "train/commands_config.hpp"
#include "train/data.hpp"
#include "train/estimate.hpp"
#include "train/lr_plot.hpp"
#include "train/memory_report.hpp"
#include "train/plan_report.hpp"
#include "train/startup.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

namespace colossal {
namespace {

void write_lr_plot(const std::string& path, const Config& config, std::int64_t total_steps) {
  std::ofstream file(path);
  file << lr_plot(config, total_steps);
  file.close();
  check(file.good(),
        ErrorKind::environment,
        "lr-plot-unwritable",
        "--lr-plot: cannot write {}: {}\n  fix   name a file in a folder that exists and is yours",
        path,
        std::strerror(errno));
}

/// What load() is given, --gpu-memory among it: what a device holds decides about plans, too.
LoadOptions plan_load_options(const ConfigOptions& config,
                              std::optional<std::int64_t> world_size,
                              const std::optional<std::string>& gpu_memory) {
  LoadOptions load = load_options(config, world_size);
  if (gpu_memory) {
    load.overrides.push_back({"run.device_memory=" + *gpu_memory, "--gpu-memory"});
  }
  return load;
}

/// The configuration sized for the processes that --world-size or its own keys give.
std::optional<Loaded> load_sized(const ConfigOptions& config, LoadOptions load) {
  if (!load.world_size) {
    Loaded unsized = colossal::load(config.config, load);
    if (unsized.has_errors()) {
      return accept_or_report(std::move(unsized), true, config.json_diagnostics);
    }
    // Its warnings come again, with more known, from the load below.
    load.world_size = num_processes("auto", unsized.config.parallel.data);
    load.world_origin = "no --world-size given";
  }
  return load_or_report(config.config, load, true, config.json_diagnostics);
}

/// Training data, and evaluation data if any; nothing if files do not exist yet and the plan can do
/// without.
std::optional<OpenedData> data_of(const Config& config) {
  try {
    return open_data(config);
  } catch (const Error& error) {
    if (error.id() != "file-not-found" || config.train.epochs) {
      throw;
    }
    fmt::print(stderr, "note: planned without data: {} [{}]\n", error.what(), error.id());
    return std::nullopt;
  }
}

/// What `plan` prints of a configuration without errors. Returns the exit code.
int plan_loaded(const Loaded& loaded, const PlanOptions& options) {
  const Config& config = loaded.config;
  const std::optional<OpenedData> data = data_of(config);
  if (data) {
    const int code = report_findings(
        check_with_data(loaded, *data->train), true, options.config.json_diagnostics);
    if (code != 0) {
      return code;
    }
  }
  set_planned_threads(config);
  const PlanReport plan =
      data ? plan_with_data(config, *data->train, data->eval.get()) : make_plan(config, 0);
  if (options.lr_plot) {
    write_lr_plot(*options.lr_plot, config, plan.total_steps);
  }
  fmt::print("{}\n",
             options.json ? redact_json(config.secrets, to_json(plan), 2)
                          : redact(config.secrets, to_text(plan)));
  if (options.strict) {
    refuse_if_over(plan, config);
  } else {
    warn_if_over(plan, config);
  }
  return 0;
}

}  // namespace

int run_plan(const PlanOptions& options) {
  const std::optional<Loaded> loaded = load_sized(
      options.config, plan_load_options(options.config, options.world_size, options.gpu_memory));
  if (!loaded) {
    return kConfigExit;
  }
  return with_places(*loaded, [&] { return plan_loaded(*loaded, options); });
}

int run_estimate(const EstimateOptions& options) {
  EstimateRequest request{
      .config = options.config.config,
      .options = plan_load_options(options.config, std::nullopt, options.gpu_memory),
      .worlds = options.worlds,
      .sweep_parallel = options.sweep_parallel};
  const std::optional<Loaded> base = load_sized(options.config, request.options);
  if (!base) {
    return kConfigExit;
  }
  if (request.worlds.empty()) {
    request.worlds.push_back(base->config.parallel.data);
  }
  const Estimate found = estimate(request, base->config);
  const Secrets& secrets = base->config.secrets;
  fmt::print("{}",
             options.json ? redact_json(secrets, to_json(found), 2) + "\n"
                          : redact(secrets, to_text(found)));
  return 0;
}

}  // namespace colossal
