// What do all commands that run ranks share before the first tensor exists?
#pragma once

#include "comm/world.hpp"
#include "config/config.hpp"
#include "config/load.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "train/data.hpp"
#include "train/plan_report.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {

/// Loads a configuration and, if `print`, writes its diagnostics to stderr, or as JSON lines to
/// stdout. Empty if it has errors: the command ends with exit code 3. Errors: those of
/// resolve_vocabulary().
[[nodiscard]] std::optional<Loaded> load_or_report(const std::filesystem::path& path,
                                                   const LoadOptions& options,
                                                   bool print,
                                                   bool json = false);

/// As load_or_report for what was loaded already.
[[nodiscard]] std::optional<Loaded> accept_or_report(Loaded loaded, bool print, bool json = false);

/// Gives the console of this process the form of logging.console.
void set_console(ConsoleForm form);
/// Whether this process writes more than warnings and errors into its log file (logging.ranks).
[[nodiscard]] bool keeps_info(const LoggingConfig& logging, int rank);
/// Begins the log file of a process other than the first with who it is.
void record_rank(const World& world);

/// logging.level as the log knows it.
[[nodiscard]] log::Level log_level(LogLevel level) noexcept;

/// Writes what check_with_data() found, as accept_or_report() does, and returns its exit code;
/// `print`: warnings alone, too.
[[nodiscard]] int report_findings(const DataFindings& findings, bool print, bool json = false);

/// The plan that `plan` prints and `train` stores. `eval` may be null.
[[nodiscard]] PlanReport plan_with_data(const Config& config,
                                        const Dataset& train,
                                        const Dataset* eval);

/// Runs `body`; errors about a key of `loaded` leave it with the place where the key was written,
/// as those of load() have it.
int with_places(const Loaded& loaded, const std::function<int()>& body);

/// Number of processes that --nproc asks for. `parallel_data`: what the configuration gives, 0 for
/// auto: then one a GPU. Errors: usage "bad-nproc".
[[nodiscard]] int num_processes(const std::string& nproc,
                                std::int64_t parallel_data,
                                std::int64_t num_gpus = 0);

/// The same for a configuration that was loaded without a number of processes, if it has no errors.
[[nodiscard]] int processes_of(const std::string& nproc, const std::optional<Loaded>& unsized);

/// Errors: usage "launch-nested" if a launcher already started more than one process.
void refuse_nested_launch(const LaunchOptions& launch);

/// A command line without these options and their values ("--nproc 2", "--nproc=2").
[[nodiscard]] std::vector<std::string> without_options(const std::vector<std::string>& arguments,
                                                       const std::vector<std::string_view>& names);

/// The command line of the children of --nproc, with the program name in front.
[[nodiscard]] std::vector<std::string> without_nproc(const std::vector<std::string>& arguments);

/// Whether this process prints what all ranks of a host find alike before they are connected: their
/// launcher has printed it already after `--nproc`.
[[nodiscard]] bool speaks(const LaunchOptions& launch);

/// Whether what this process prints is for programs if the command line asks for that (`json`): of
/// the ranks of another launcher, rank 0 alone speaks JSON, so that a mistake is one object.
[[nodiscard]] bool speaks_json(const LaunchOptions& launch, bool json);

/// Writes an error that ends this process, as write_error() does. A mistake that all ranks of a
/// host find alike is told by one of them. `arguments`: the command line, which may choose how the
/// ranks were launched; it need not be valid.
void print_error(const Error& error, bool json, const std::vector<std::string>& arguments);

/// Connects the ranks and runs `body` in each. An error after that stops all ranks by World::abort;
/// in a world of one it is rethrown. `on_failure` hears of it first, and of a failure of any other
/// rank. Returns what `body` returned.
int run_connected(const Config& config,
                  const LaunchOptions& launch,
                  const std::function<int(World&)>& body,
                  const FailureListener& on_failure = {});

/// Runs `decide` on rank 0 only and returns its text on every rank; an Error of it is thrown on
/// every rank. Collective over `comm`.
[[nodiscard]] std::string decide_on_rank_0(const Comm& comm,
                                           const std::function<std::string()>& decide);

}  // namespace colossal
