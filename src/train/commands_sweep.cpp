// How are the trials of a sweep told, started and compared?
#include "train/commands_sweep.hpp"

#include "core/error.hpp"
#include "core/output_file.hpp"
#include "core/system.hpp"
#include "train/sweep_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unistd.h>

namespace colossal {
namespace {

namespace fs = std::filesystem;
using Form = SweepOptions::Form;

/// The sweep of a file whose trials are valid and whose folder holds no others; empty after its
/// errors were written.
std::optional<Sweep> load_or_report(const SweepOptions& options) {
  Sweep sweep = load_sweep(options.file);
  const int stream = options.json_diagnostics ? STDOUT_FILENO : STDERR_FILENO;
  fmt::print(options.json_diagnostics ? stdout : stderr,
             "{}",
             render(sweep.diagnostics, diagnostic_form(options.json_diagnostics, stream)));
  if (sweep.has_errors()) {
    return std::nullopt;
  }
  const std::vector<fs::path> left = left_over(sweep);
  check(left.empty() || options.accept,
        ErrorKind::config,
        "sweep-changed",
        "{} holds {} trial{} that {} does not have any more, {} the first: its base or its values "
        "were changed\n  fix   undo the change, set run.output_dir or name for a new sweep, or "
        "--accept",
        sweep.output_dir,
        left.size(),
        left.size() == 1 ? "" : "s",
        options.file,
        left.empty() ? "" : left.front().filename().string());
  return sweep;
}

/// A word of a shell's command line.
std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+-=:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
    return word;
  }
  std::string quoted = "'";
  for (const char c : word) {
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return quoted + "'";
}

/// As the user would name it here.
std::string shown_path(const fs::path& path) {
  std::error_code error;
  const std::string near = fs::proximate(path, error).string();
  return error || near.starts_with("..") ? path.string() : near;
}

/// What starts a trial, or continues it; a finished one does nothing.
std::string command_of(const Sweep& sweep, const TrialRun& run) {
  std::vector<std::string> words = {program_command(), "train", shown_path(sweep.base)};
  for (const Related& set : run.trial.sets) {
    words.insert(words.end(), {"--set", set.path + "=" + set.value});
  }
  if (sweep.nproc) {
    words.insert(words.end(), {"--nproc", *sweep.nproc});
  }
  words.insert(words.end(), {"--output-dir", shown_path(run.folder), "--resume", "auto"});
  std::string line;
  for (const std::string& word : words) {
    line += (line.empty() ? "" : " ") + shell_word(word);
  }
  return line;
}

void write_results(const Sweep& sweep, const std::vector<TrialRun>& runs) {
  std::error_code error;
  if (!fs::is_directory(sweep.output_dir, error)) {
    return;  // nothing has run
  }
  const std::string text = to_csv(result_rows(runs, true));
  OutputFile file(fs::path(sweep.output_dir) / "results.csv");
  file.write(std::as_bytes(std::span(text)));
  file.finish();
  file.commit();
}

}  // namespace

int run_sweep_expand(const SweepOptions& options) {
  const std::optional<Sweep> sweep = load_or_report(options);
  if (!sweep) {
    return kConfigExit;
  }
  const std::vector<TrialRun> runs = trial_runs(*sweep);
  if (options.form == Form::json) {
    fmt::print("{}\n", to_json(runs));
    return 0;
  }
  if (options.form == Form::script) {
    const char* word = sweep->stops_on_failure ? "stop" : "continue";
    fmt::print("{} {} {}\n", sweep->parallel, sweep->retries, word);
  }
  for (const TrialRun& run : runs) {
    if (options.form != Form::commands) {
      fmt::print("{}\t{}\t{}\t", run.trial.index, run.trial.id, run.state);
    }
    fmt::print("{}\n", options.form == Form::text ? run.trial.overrides : command_of(*sweep, run));
  }
  return 0;
}

int run_sweep_status(const SweepOptions& options) {
  const std::optional<Sweep> sweep = load_or_report(options);
  if (!sweep) {
    return kConfigExit;
  }
  const std::vector<TrialRun> runs = trial_runs(*sweep);
  if (options.form == Form::json) {
    fmt::print("{}\n", to_json(runs));
  } else {
    fmt::print("{}{}\n", to_table(status_rows(runs), {.left = 2}), count_states(runs));
  }
  return 0;
}

int run_sweep_collect(const SweepOptions& options) {
  const std::optional<Sweep> sweep = load_or_report(options);
  if (!sweep) {
    return kConfigExit;
  }
  std::vector<TrialRun> runs = trial_runs(*sweep);
  for (TrialRun& run : runs) {
    run.folder = shown_path(run.folder);
  }
  write_results(*sweep, runs);
  fmt::print("{}",
             options.form == Form::json  ? to_json(runs) + "\n"
             : options.form == Form::csv ? to_csv(result_rows(runs, true))
                                         : to_table(result_rows(runs, false), {.left = 2}));
  return 0;
}

int run_sweep_schema() {
  fmt::print("{}", sweep_schema());
  return 0;
}

}  // namespace colossal
