// How are run directories of trials found and read? None of them is written.
#include "train/sweep_runs.hpp"

#include "core/system.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

namespace colossal {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// The id in the name of a trial's folder, "0007-3fa2c1d0"; empty for other names.
std::string id_in(const std::string& name) {
  constexpr std::size_t kIdDigits = 8;
  const std::size_t dash = name.find('-');
  const bool shaped = dash != std::string::npos && dash >= 4 &&
                      name.size() == dash + 1 + kIdDigits &&
                      name.find_first_not_of("0123456789") == dash &&
                      name.find_first_not_of("0123456789abcdef", dash + 1) == std::string::npos;
  return shaped ? name.substr(dash + 1) : "";
}

/// Folders of trials by their id.
std::map<std::string, fs::path> trial_folders(const fs::path& output_dir) {
  std::map<std::string, fs::path> folders;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(output_dir, error)) {
    const std::string id = id_in(entry.path().filename().string());
    if (!id.empty() && entry.is_directory(error)) {
      folders.emplace(id, entry.path());
    }
  }
  return folders;
}

std::int64_t integer(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

std::optional<double> number(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? std::optional(found->get<double>())
                                                   : std::nullopt;
}

std::string text(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Whether status.json speaks of a process of this host that is no more.
bool is_lost(const Json& status) {
  const auto pid = static_cast<pid_t>(integer(status, "pid"));
  return text(status, "host") == host_name() && pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH;
}

void read_status(TrialRun& run) {
  const fs::path file = run.folder / "status.json";
  std::error_code error;
  if (!fs::exists(file, error)) {
    return;
  }
  const Json status = Json::parse(read_text(file), nullptr, /*allow_exceptions=*/false);
  const std::string state = status.is_object() ? text(status, "state") : "";
  run.state = state.empty() ? "unknown" : state == "running" && is_lost(status) ? "lost" : state;
  if (state.empty()) {
    return;
  }
  run.step = integer(status, "step");
  run.total = integer(status, "total");
  run.attempt = integer(status, "attempt");
  if (const auto exit = status.find("exit"); exit != status.end() && exit->is_number_integer()) {
    run.exit_code = exit->get<std::int64_t>();
  }
}

/// The first and the last moment of an attempt.
struct Span {
  double first;
  double last;
};

/// Of each kind and step the last record counts (schemas/metrics.md).
void read_metrics(TrialRun& run) {
  std::istringstream lines(read_text(run.folder / "metrics.jsonl"));
  std::map<std::pair<std::string, std::int64_t>, Json> records;
  std::map<std::int64_t, Span> attempts;
  for (std::string line; std::getline(lines, line);) {
    Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object()) {
      continue;  // the partial last line of a run that is writing or was killed
    }
    const double time = number(record, "t").value_or(0);
    attempts.try_emplace(integer(record, "attempt"), Span{time, time}).first->second.last = time;
    const std::pair key(text(record, "kind"), integer(record, "step"));
    records[key] = std::move(record);
  }
  for (const auto& [attempt, span] : attempts) {
    run.seconds += span.last - span.first;
  }
  for (const auto& [key, record] : records) {
    const std::optional<double> loss = number(record, "loss");
    if (key.first == "train") {
      run.loss = loss;
    } else if (key.first == "eval") {
      run.eval_loss = loss;
      run.accuracy = number(record, "accuracy");
      const bool better = loss && (!run.best_eval_loss || *loss < *run.best_eval_loss);
      run.best_eval_loss = better ? loss : run.best_eval_loss;
    }
  }
}

/// The keys that any trial sets, in alphabetical order, and their values in each.
std::vector<std::string> swept_keys(const std::vector<TrialRun>& runs) {
  std::set<std::string> keys;
  for (const TrialRun& run : runs) {
    for (const Related& set : run.trial.sets) {
      keys.insert(set.path);
    }
  }
  return {keys.begin(), keys.end()};
}

void append_values(TableRow& row, const TrialRun& run, const std::vector<std::string>& keys) {
  const Json overrides = Json::parse(run.trial.overrides);
  for (const std::string& key : keys) {
    const auto found = overrides.find(key);
    row.push_back(found == overrides.end() ? "-"
                  : found->is_string()     ? found->get<std::string>()
                                           : found->dump());
  }
}

std::string metric_text(const std::optional<double>& value, bool exact) {
  const std::string none = exact ? "" : "-";
  return !value ? none : exact ? Json(*value).dump() : fmt::format("{:.4f}", *value);
}

std::string exit_text(const TrialRun& run, const char* none) {
  return run.exit_code ? std::to_string(*run.exit_code) : none;
}

/// A metric that a column may show.
struct Metric {
  const char* title;
  std::optional<double> TrialRun::* value;
};

constexpr std::array kMetrics = {Metric{"loss", &TrialRun::loss},
                                 Metric{"eval_loss", &TrialRun::eval_loss},
                                 Metric{"best_eval_loss", &TrialRun::best_eval_loss},
                                 Metric{"accuracy", &TrialRun::accuracy}};

Json json_of(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace

std::vector<TrialRun> trial_runs(const Sweep& sweep) {
  const std::map<std::string, fs::path> folders = trial_folders(sweep.output_dir);
  std::vector<TrialRun> runs;
  for (const SweepTrial& trial : sweep.trials) {
    const auto known = folders.find(trial.id);
    TrialRun& run = runs.emplace_back();
    run.trial = trial;
    run.state = "pending";
    run.folder = known != folders.end() ? known->second : fs::path(sweep.output_dir) / trial.name();
    read_status(run);
    read_metrics(run);
  }
  return runs;
}

std::vector<fs::path> left_over(const Sweep& sweep) {
  std::map<std::string, fs::path> folders = trial_folders(sweep.output_dir);
  for (const SweepTrial& trial : sweep.trials) {
    folders.erase(trial.id);
  }
  std::vector<fs::path> left;
  for (const auto& [id, folder] : folders) {
    left.push_back(folder);
  }
  std::ranges::sort(left);
  return left;
}

std::vector<TableRow> status_rows(const std::vector<TrialRun>& runs) {
  const std::vector<std::string> keys = swept_keys(runs);
  TableRow titles = {"trial", "state", "step", "attempt", "exit"};
  titles.insert(titles.end(), keys.begin(), keys.end());
  std::vector<TableRow> rows = {titles};
  for (const TrialRun& run : runs) {
    TableRow& row = rows.emplace_back();
    row = {run.trial.name(),
           run.state,
           run.total > 0 ? fmt::format("{}/{}", run.step, run.total) : "-",
           run.attempt > 0 ? std::to_string(run.attempt) : "-",
           exit_text(run, "-")};
    append_values(row, run, keys);
  }
  return rows;
}

std::vector<TableRow> result_rows(const std::vector<TrialRun>& runs, bool exact) {
  const std::vector<std::string> keys = swept_keys(runs);
  std::vector<Metric> metrics;
  std::ranges::copy_if(kMetrics, std::back_inserter(metrics), [&](const Metric& metric) {
    return std::ranges::any_of(
        runs, [&](const TrialRun& run) { return (run.*metric.value).has_value(); });
  });
  TableRow titles = {"trial", "state"};
  titles.insert(titles.end(), keys.begin(), keys.end());
  for (const Metric& metric : metrics) {
    titles.emplace_back(metric.title);
  }
  titles.insert(titles.end(), {"step", "seconds", "exit", "folder"});
  std::vector<TableRow> rows = {titles};
  for (const TrialRun& run : runs) {
    TableRow row = {run.trial.name(), run.state};
    append_values(row, run, keys);
    for (const Metric& metric : metrics) {
      row.push_back(metric_text(run.*metric.value, exact));
    }
    row.push_back(std::to_string(run.step));
    row.push_back(fmt::format("{:.1f}", run.seconds));
    row.push_back(exit_text(run, exact ? "" : "-"));
    row.push_back(run.folder.string());
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string count_states(const std::vector<TrialRun>& runs) {
  std::vector<std::pair<std::string, int>> counts;  // in the order of the trials
  for (const TrialRun& run : runs) {
    const auto known = std::ranges::find(counts, run.state, &std::pair<std::string, int>::first);
    if (known == counts.end()) {
      counts.emplace_back(run.state, 1);
    } else {
      ++known->second;
    }
  }
  std::string list;
  for (const auto& [state, count] : counts) {
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", count, state);
  }
  return fmt::format("{} trial{}: {}", runs.size(), runs.size() == 1 ? "" : "s", list);
}

std::string to_json(const std::vector<TrialRun>& runs) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const TrialRun& run : runs) {
    list.push_back({{"index", run.trial.index},
                    {"id", run.trial.id},
                    {"state", run.state},
                    {"overrides", Json::parse(run.trial.overrides)},
                    {"step", run.step},
                    {"total", run.total},
                    {"attempt", run.attempt},
                    {"exit", run.exit_code ? Json(*run.exit_code) : Json(nullptr)},
                    {"loss", json_of(run.loss)},
                    {"eval_loss", json_of(run.eval_loss)},
                    {"best_eval_loss", json_of(run.best_eval_loss)},
                    {"accuracy", json_of(run.accuracy)},
                    {"seconds", run.seconds},
                    {"folder", run.folder.string()}});
  }
  return list.dump(2);
}

}  // namespace colossal
