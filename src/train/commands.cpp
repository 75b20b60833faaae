// What do the commands do that start no ranks? validate, plan, config show.
#include "train/commands.hpp"

#include "config/load.hpp"
#include "core/error.hpp"
#include "data/dataset.hpp"
#include "train/plan_report.hpp"
#include "train/startup.hpp"

#include <fmt/format.h>

#include <cstdio>

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

/// The plan with what the data say; files that do not exist yet leave their part out.
PlanReport plan_of(const Config& config) {
  try {
    const OpenedData data = open_data(config);
    return plan_with_data(config, *data.train, data.eval.get());
  } catch (const Error& error) {
    if (error.id() != "file-not-found" || config.train.epochs) {
      throw;
    }
    fmt::print(stderr, "note: planned without data: {} [{}]\n", error.what(), error.id());
    return make_plan(config, 0);
  }
}

int validate_one(const std::string& path, const ValidateOptions& options) {
  const Loaded loaded = load(path, load_options(options.sets, options.world_size));
  fmt::print("{}", render(loaded.diagnostics));
  if (loaded.has_errors()) {
    return kConfigExit;
  }
  if (options.data) {
    const OpenedData data = open_data(loaded.config);
    fmt::print("{}\n", data.train->summary());
    if (data.eval != nullptr) {
      fmt::print("{}\n", data.eval->summary());
    }
  }
  fmt::print("{}: ok\n", path);
  return 0;
}

}  // namespace

int run_validate(const ValidateOptions& options) {
  int code = 0;
  for (const std::string& path : options.configs) {
    const int one = validate_one(path, options);
    code = code == 0 ? one : code;
  }
  return code;
}

int run_plan(const PlanOptions& options) {
  LoadOptions load = load_options(options.config.sets, options.world_size);
  if (!load.world_size) {
    Loaded unsized = colossal::load(options.config.config, load);
    if (unsized.has_errors()) {
      static_cast<void>(config_or_report(std::move(unsized), true));
      return kConfigExit;
    }
    // Its warnings come again, with more known, from the load below.
    load.world_size = num_processes("auto", unsized.config.parallel.data);
    load.world_origin = "no --world-size given";
  }
  const std::optional<Config> config = load_or_report(options.config.config, load, true);
  if (!config) {
    return kConfigExit;
  }
  const PlanReport plan = plan_of(*config);
  fmt::print("{}\n", options.json ? to_json(plan) : to_text(plan));
  return 0;
}

int run_config_show(const ShowOptions& options) {
  const std::optional<Config> config =
      load_or_report(options.config.config, load_options(options.config.sets, {}), true);
  if (!config) {
    return kConfigExit;
  }
  fmt::print("{}", options.minimal ? to_minimal_yaml(*config) : to_yaml(*config));
  return 0;
}

}  // namespace colossal
