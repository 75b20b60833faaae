// What does `eval` do? Loads a checkpoint on any number of processes and visits the evaluation data
// once.
#include "checkpoint/stored_config.hpp"
#include "comm/launch.hpp"
#include "config/load.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "data/dataset.hpp"
#include "mesh/context.hpp"
#include "train/commands.hpp"
#include "train/data.hpp"
#include "train/evaluate.hpp"
#include "train/model.hpp"
#include "train/signals.hpp"
#include "train/startup.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace colossal {
namespace {

/// The stored configuration is resolved for the number of processes that trained; these keys follow
/// from the number that evaluates.
constexpr std::array<const char*, 4> kFollowsWorld = {"parallel.data=auto",
                                                      "train.global_batch_size=null",
                                                      "train.gradient_accumulation=null",
                                                      "train.batch_ramp=null"};
/// Makes the configuration's own rules demand evaluation data.
constexpr const char* kEvaluates = "eval.at_end=true";
/// Nothing is written into logs/, and the ranks that trained need not be there.
constexpr const char* kLogsNothing = "logging.ranks=zero";
/// Where messages say that such a value comes from.
constexpr const char* kOwnOverride = "<eval>";
/// Keys that matter in training only; what was to be said of them, `train` has said.
constexpr std::array<std::string_view, 7> kTrainingKeys = {"train.",
                                                           "optimizer.",
                                                           "scheduler.",
                                                           "checkpoint.",
                                                           "logging.",
                                                           "eval.every_steps",
                                                           "eval.at_"};

struct EvalInput {
  std::filesystem::path checkpoint;
  RunState state;
};

EvalInput read_input(const EvalOptions& options) {
  EvalInput input;
  input.checkpoint = find_checkpoint(options.checkpoint);
  input.state = read_state(input.checkpoint);
  if (!options.config) {
    static_cast<void>(stored_config(input.state));  // whatever is wrong later, the options did it
  }
  return input;
}

/// Whether evaluation has no use for a warning or note.
bool is_of_training(const Diagnostic& item) {
  for (const std::string_view key : kTrainingKeys) {
    if (item.severity != Diagnostic::Severity::error && item.path.starts_with(key)) {
      return true;
    }
  }
  return false;
}

/// What the command sets by itself, then what its user does.
std::vector<Override> eval_overrides(const EvalOptions& options) {
  std::vector<Override> overrides;
  overrides.push_back({kEvaluates, kOwnOverride});
  overrides.push_back({kLogsNothing, kOwnOverride});
  if (!options.config) {
    for (const char* text : kFollowsWorld) {
      overrides.push_back({text, kOwnOverride});
    }
  }
  for (const std::string& text : options.more.sets) {
    overrides.push_back({text});
  }
  return overrides;
}

/// The configuration to evaluate with; empty if it has errors, which are printed if asked.
std::optional<Loaded> eval_config(const EvalOptions& options,
                                  const EvalInput& input,
                                  LoadOptions load,
                                  bool print) {
  load.overlays = options.more.overlays;
  load.overrides = eval_overrides(options);
  load.run_time = "eval";  // nothing is named by it here, and all ranks must read the same
  Loaded loaded =
      options.config ? colossal::load(*options.config, load) : load_stored(input.state, load);
  std::erase_if(loaded.diagnostics, is_of_training);
  return accept_or_report(std::move(loaded), print);
}

std::string to_json_line(const EvalReport& report, const EvalInput& input) {
  nlohmann::ordered_json json;
  json["checkpoint"] = input.checkpoint.string();
  json["step"] = input.state.step;
  json["loss"] = report.loss;
  if (report.accuracy) {
    json["accuracy"] = *report.accuracy;
  } else {
    json["perplexity"] = std::exp(report.loss);
  }
  json["tokens"] = report.tokens;
  json["samples"] = report.samples;
  json["set_samples"] = report.set_samples;
  json["batches"] = report.num_batches;
  json["seconds"] = report.seconds;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

/// Needs the evaluation data and the weights, nothing else of the run that wrote them.
int run_evaluation(const Config& config, const EvalInput& input, World& world) {
  const std::unique_ptr<const Dataset> data = open_split(config, Split::eval);
  if (config.data.tokenizer) {
    check_tokenizer(tokenizer_part(input.state.data_fingerprint),
                    tokenizer_part(data->fingerprint()));
  }
  const ParallelContext context(config, world);
  const LiveModel model = load_model(config, context, input.checkpoint, world.comm());
  const EvalReport report = evaluate(*model.stage, *data, config, context, input.state.step);
  if (world.rank() == 0) {
    fmt::print("{}\n", to_json_line(report, input));
  }
  return 0;
}

int run_rank(const EvalOptions& options, const EvalInput& input, const LaunchOptions& launch) {
  LoadOptions load;
  load.world_size = launch.world_size;
  load.world_origin = launch.origin;
  const std::optional<Loaded> loaded = eval_config(options, input, load, speaks(launch));
  if (!loaded) {
    return kConfigExit;
  }
  const Config& config = loaded->config;
  log::configure({.level = options.log_level.value_or(log_level(config.logging.level)),
                  .rank = launch.rank,
                  .folder = {}});
  const auto evaluate = [&](World& world) {
    return with_places(*loaded, [&] { return run_evaluation(config, input, world); });
  };
  return with_places(*loaded, [&] { return run_connected(config, launch, evaluate); });
}

/// Starts the processes that --nproc asks for, after one look at the config and the data.
int run_processes(const EvalOptions& options, const EvalInput& input, int processes) {
  LoadOptions load;
  load.world_size = processes;
  load.world_origin = fmt::format("--nproc {}", *options.nproc);
  const std::optional<Loaded> loaded = eval_config(options, input, load, true);
  if (!loaded) {
    return kConfigExit;
  }
  with_places(*loaded, [&] {
    static_cast<void>(open_split(loaded->config, Split::eval));
    return 0;
  });
  return launch_local({.num_processes = processes, .arguments = without_nproc(options.arguments)})
      .exit_code;
}

}  // namespace

int run_eval(const EvalOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);
  const LaunchOptions launch = detect_launch(options.launch);
  if (!launch.warning.empty()) {
    log::warn("{}", launch.warning);
  }
  const EvalInput input = read_input(options);
  if (options.nproc) {
    refuse_nested_launch(launch);
    const int processes = processes_of(*options.nproc, eval_config(options, input, {}, false));
    if (processes > 1) {
      return run_processes(options, input, processes);
    }
  }
  const SignalWatch signals;
  return run_rank(options, input, launch);
}

}  // namespace colossal
