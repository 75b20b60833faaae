// What do the commands do that open data but start no ranks: plan, and the check of `validate
// --data`?
#include "train/commands.hpp"

#include "config/explain.hpp"
#include "config/load.hpp"
#include "core/error.hpp"
#include "train/commands_config.hpp"
#include "train/data.hpp"
#include "train/lr_plot.hpp"
#include "train/plan_report.hpp"
#include "train/startup.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <unistd.h>
#include <utility>

namespace colossal {
namespace {

constexpr int kConfigExit = static_cast<int>(ErrorKind::config);

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

/// The configuration sized for the processes that --world-size or its own keys give.
std::optional<Loaded> load_sized(const PlanOptions& options) {
  LoadOptions load = load_options(options.config, options.world_size);
  if (!load.world_size) {
    Loaded unsized = colossal::load(options.config.config, load);
    if (unsized.has_errors()) {
      return accept_or_report(std::move(unsized), true, options.config.json_diagnostics);
    }
    // Its warnings come again, with more known, from the load below.
    load.world_size = num_processes("auto", unsized.config.parallel.data);
    load.world_origin = "no --world-size given";
  }
  return load_or_report(options.config.config, load, true, options.config.json_diagnostics);
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

int check_data(const Loaded& found, bool json) {
  Loaded loaded = found;
  resolve_vocabulary(loaded.config);
  const OpenedData data = open_data(loaded.config);
  const DataFindings findings = check_with_data(loaded, *data.train);
  fmt::print("{}", render(findings.diagnostics, diagnostic_form(json, STDOUT_FILENO)));
  if (findings.exit_code != 0 || json) {
    return findings.exit_code;
  }
  fmt::print("{}\n", data.train->summary());
  if (data.eval != nullptr) {
    fmt::print("{}\n", data.eval->summary());
  }
  return 0;
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
  fmt::print("{}\n",
             options.json ? redact_json(config.secrets, to_json(plan), 2)
                          : redact(config.secrets, to_text(plan)));
  return 0;
}

}  // namespace colossal
