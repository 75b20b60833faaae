// What do the commands do that start no ranks? validate, plan, config show.
#include "train/commands.hpp"

#include "config/load.hpp"
#include "core/error.hpp"
#include "train/data.hpp"
#include "train/foreign.hpp"
#include "train/lr_plot.hpp"
#include "train/plan_report.hpp"
#include "train/startup.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

namespace colossal {
namespace {

constexpr int kConfigExit = static_cast<int>(ErrorKind::config);

LoadOptions load_options(const std::vector<std::string>& sets,
                         const std::optional<std::int64_t>& world_size) {
  LoadOptions options;
  options.overrides = to_overrides(sets);
  options.world_size = world_size;
  if (world_size) {
    options.world_origin = fmt::format("--world-size {}", *world_size);
  }
  return options;
}

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

int validate_one(const std::string& path, const ValidateOptions& options) {
  Loaded loaded = load(path, load_options(options.sets, options.world_size));
  fmt::print("{}", render(loaded.diagnostics));
  if (loaded.has_errors()) {
    return kConfigExit;
  }
  if (options.data) {
    resolve_vocabulary(loaded.config);
    const OpenedData data = open_data(loaded.config);
    const DataFindings findings = check_with_data(loaded, *data.train);
    fmt::print("{}", render(findings.diagnostics));
    if (findings.exit_code != 0) {
      return findings.exit_code;
    }
    fmt::print("{}\n", data.train->summary());
    if (data.eval != nullptr) {
      fmt::print("{}\n", data.eval->summary());
    }
  }
  fmt::print("{}: ok\n", path);
  return 0;
}

/// validate_one() whose errors are this file's result: the next file has its turn.
int validate_and_report(const std::string& path, const ValidateOptions& options) {
  try {
    return validate_one(path, options);
  } catch (const Error& error) {
    std::fflush(stdout);
    fmt::print(stderr, "{}", to_text(error));
    return error.exit_code();
  }
}

/// The configuration sized for the processes that --world-size or its own keys give.
std::optional<Loaded> load_sized(const PlanOptions& options) {
  LoadOptions load = load_options(options.config.sets, options.world_size);
  if (!load.world_size) {
    Loaded unsized = colossal::load(options.config.config, load);
    if (unsized.has_errors()) {
      return accept_or_report(std::move(unsized), true);
    }
    // Its warnings come again, with more known, from the load below.
    load.world_size = num_processes("auto", unsized.config.parallel.data);
    load.world_origin = "no --world-size given";
  }
  return load_or_report(options.config.config, load, true);
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

}  // namespace

int run_validate(const ValidateOptions& options) {
  int code = 0;
  for (const std::string& path : options.configs) {
    const int one = validate_and_report(path, options);
    code = code == 0 ? one : code;
  }
  return code;
}

int run_plan(const PlanOptions& options) {
  const std::optional<Loaded> loaded = load_sized(options);
  if (!loaded) {
    return kConfigExit;
  }
  const Config& config = loaded->config;
  const std::optional<OpenedData> data = data_of(config);
  if (data) {
    const int code = report_findings(check_with_data(*loaded, *data->train), true);
    if (code != 0) {
      return code;
    }
  }
  const PlanReport plan =
      data ? plan_with_data(config, *data->train, data->eval.get()) : make_plan(config, 0);
  if (options.lr_plot) {
    write_lr_plot(*options.lr_plot, config, plan.total_steps);
  }
  fmt::print("{}\n", options.json ? to_json(plan) : to_text(plan));
  return 0;
}

int run_config_show(const ShowOptions& options) {
  const std::optional<Loaded> loaded =
      load_or_report(options.config.config, load_options(options.config.sets, {}), true);
  if (!loaded) {
    return kConfigExit;
  }
  fmt::print("{}", options.minimal ? to_minimal_yaml(loaded->config) : to_yaml(loaded->config));
  return 0;
}

}  // namespace colossal
