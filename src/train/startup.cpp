// How do ranks come to one view of the run? Loading, data checks, launch and agreement.
#include "train/startup.hpp"

#include "comm/launch.hpp"
#include "core/error.hpp"
#include "data/dataset.hpp"
#include "data/tokenizers/tokenizer.hpp"
#include "train/commands.hpp"
#include "train/foreign.hpp"
#include "train/late_errors.hpp"
#include "train/rank_device.hpp"
#include "train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <source_location>
#include <unistd.h>
#include <utility>

namespace colossal {
namespace {

constexpr int kMaxProcesses = 1024;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

WorldTimeouts timeouts(const CommConfig& comm) {
  return {milliseconds(comm.init_timeout_seconds), milliseconds(comm.timeout_seconds)};
}

void print_diagnostics(const std::vector<Diagnostic>& diagnostics, bool json) {
  const std::string text = render(diagnostics, diagnostic_form(json, STDERR_FILENO));
  std::fwrite(text.data(), 1, text.size(), json ? stdout : stderr);
}

/// Stops all ranks; a world of one has nobody to tell.
[[noreturn]] void stop_world(World& world, const Error& error) {
  if (world.size() == 1) {
    world.report(error);
    throw Error(error);
  }
  world.abort(error);
}

/// The value of an option in a command line, whether its other words were understood or not.
std::string value_of(const std::vector<std::string>& arguments, std::string_view name) {
  std::string value;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    if (word == name && i + 1 < arguments.size()) {
      value = arguments[i + 1];
    } else if (word.starts_with(name) && word.substr(name.size()).starts_with('=')) {
      value = word.substr(name.size() + 1);
    }
  }
  return value;
}

LaunchFlags launch_flags(const std::vector<std::string>& arguments) {
  LaunchFlags flags;
  const std::string mode = value_of(arguments, "--launch");
  const std::string port = value_of(arguments, "--master-port");
  flags.mode = mode.empty() ? flags.mode : mode;
  flags.master_addr = value_of(arguments, "--master-addr");
  std::from_chars(port.data(), port.data() + port.size(), flags.master_port);
  flags.rendezvous = value_of(arguments, "--rendezvous");
  return flags;
}

/// Which process of its job this is, as far as its variables and a command line that may be wrong
/// tell: by what it asks for, else by the variables alone.
std::optional<LaunchOptions> launch_of(const std::vector<std::string>& arguments) {
  for (const LaunchFlags& flags : {launch_flags(arguments), LaunchFlags{}}) {
    try {
      return detect_launch(flags);
    } catch (const Error&) {  // perhaps the one that is being told
      continue;
    }
  }
  return std::nullopt;
}

/// Whether an error can come from what a key says, not only while it was used.
bool tells_of_key(const Error& error) {
  return !error.key().empty() && error.place().empty() &&
         (error.kind() == ErrorKind::config || error.kind() == ErrorKind::data ||
          error.kind() == ErrorKind::checkpoint || error.kind() == ErrorKind::environment);
}

}  // namespace

int with_places(const Loaded& loaded, const std::function<int()>& body) {
  try {
    return body();
  } catch (const Error& error) {
    if (!tells_of_key(error)) {
      throw;
    }
    const KeyPlace at = place_of(loaded, error.key());
    throw Error(error.placed(at.place, at.lines));
  }
}

std::optional<Loaded> load_or_report(const std::filesystem::path& path,
                                     const LoadOptions& options,
                                     bool print,
                                     bool json) {
  return accept_or_report(load(path, options), print, json);
}

std::optional<Loaded> accept_or_report(Loaded loaded, bool print, bool json) {
  if (print) {
    print_diagnostics(loaded.diagnostics, json);
  }
  if (loaded.has_errors()) {
    return std::nullopt;
  }
  with_places(loaded, [&] {
    resolve_vocabulary(loaded);
    return 0;
  });
  return loaded;
}

int report_findings(const DataFindings& findings, bool print, bool json) {
  if (print || findings.exit_code != 0) {
    print_diagnostics(findings.diagnostics, json);
  }
  return findings.exit_code;
}

log::Level log_level(LogLevel level) noexcept {
  return static_cast<log::Level>(level);  // the same words in the same order
}

PlanReport plan_with_data(const Config& config, const Dataset& train, const Dataset* eval) {
  const std::int64_t epoch = SampleOrder(train.sources(), order_spec(config)).samples_per_epoch();
  PlanReport plan = make_plan(config, epoch);
  plan.data_lines.push_back("train " + train.summary());
  if (eval != nullptr) {
    plan.data_lines.push_back("eval  " + eval->summary());
  }
  return plan;
}

int num_processes(const std::string& nproc, std::int64_t parallel_data, std::int64_t num_gpus) {
  if (nproc == "auto") {
    return static_cast<int>(parallel_data > 0 ? parallel_data
                                              : std::max<std::int64_t>(num_gpus, 1));
  }
  int count = 0;
  const char* end = nproc.data() + nproc.size();
  const auto [stop, error] = std::from_chars(nproc.data(), end, count);
  check(error == std::errc{} && stop == end && count >= 1 && count <= kMaxProcesses,
        ErrorKind::usage,
        "bad-nproc",
        "--nproc '{}' is no number of processes\n  fix   give auto or a number from 1 to {}",
        nproc,
        kMaxProcesses);
  return count;
}

int processes_of(const std::string& nproc, const std::optional<Loaded>& unsized) {
  const bool gpus = unsized && unsized->config.run.device != DeviceKind::cpu;
  return num_processes(nproc,
                       unsized ? unsized->config.parallel.data : 0,
                       gpus ? std::ssize(survey_gpus().gpus) : 0);
}

void refuse_nested_launch(const LaunchOptions& launch) {
  check(launch.world_size == 1,
        ErrorKind::usage,
        "launch-nested",
        "--nproc inside a job of {} processes ({}) would start {} times as many\n  fix   drop "
        "--nproc, or start without the other launcher",
        launch.world_size,
        launch.origin,
        launch.world_size);
}

std::vector<std::string> without_options(const std::vector<std::string>& arguments,
                                         const std::vector<std::string_view>& names) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = std::string_view(arguments[i]).substr(0, arguments[i].find('='));
    if (std::ranges::find(names, name) == names.end()) {
      kept.push_back(arguments[i]);
    } else if (name == arguments[i]) {
      ++i;  // its value
    }
  }
  return kept;
}

std::vector<std::string> without_nproc(const std::vector<std::string>& arguments) {
  std::vector<std::string> kept =
      without_options(arguments, {"--nproc", "--max-restarts", "--restart-delay"});
  kept.insert(kept.begin(), "colossal-train");
  return kept;
}

bool speaks(const LaunchOptions& launch) {
  return launch.mode != "spawn" && launch.local_rank == 0;
}

bool speaks_json(const LaunchOptions& launch, bool json) {
  return json && (launch.mode == "spawn" || launch.rank == 0);
}

void print_error(const Error& error, bool json, const std::vector<std::string>& arguments) {
  const bool alike = error.kind() == ErrorKind::usage || error.kind() == ErrorKind::config;
  const std::optional<LaunchOptions> launch = launch_of(arguments);
  if (!launch) {
    write_error(error, json);
  } else if (!alike || launch->mode == "spawn" || launch->local_rank == 0) {
    write_error(error, speaks_json(*launch, json));
  }
}

int run_connected(const Config& config,
                  const LaunchOptions& launch,
                  const std::function<int(World&)>& body,
                  const FailureListener& on_failure) {
  set_console(config.logging.console);
  const DeviceChoice choice = take_device(config, launch);
  set_threads(config.run, launch.local_world_size);
  const std::unique_ptr<World> world = World::connect(launch,
                                                      Identity{.build_id = build_id(),
                                                               .config_hash = config_hash(config),
                                                               .config_keys = key_values(config),
                                                               .device = choice.device,
                                                               .gpu_uuid = choice.gpu.uuid,
                                                               .gpu_name = choice.gpu.name},
                                                      timeouts(config.parallel.comm),
                                                      on_failure);
  try {
    const int code = body(*world);
    world->close();
    return code;
  } catch (const std::exception& error) {
    stop_world(*world, to_error(error));
  }
}

std::string decide_on_rank_0(const Comm& comm, const std::function<std::string()>& decide) {
  nlohmann::json message = nlohmann::json::object();
  if (comm.rank() == 0) {
    try {
      message["text"] = decide();
    } catch (const Error& error) {
      message["kind"] = error.exit_code();
      message["id"] = std::string(error.id());
      message["error"] = std::string(error.what());
      message["key"] = error.key();
    }
  }
  message = nlohmann::json::parse(
      comm.gather_text(message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))
          .front());
  if (message.contains("error")) {
    Error error(static_cast<ErrorKind>(message["kind"].get<int>()),
                message["id"].get<std::string>(),
                message["error"].get<std::string>(),
                std::source_location::current());
    error.blame(message["key"].get<std::string>());
    throw Error(error);
  }
  return message["text"].get<std::string>();
}

}  // namespace colossal
