// How does a sweep file become trials that are known to be valid?
#include "config/sweep.hpp"

#include "config/sweep/expand.hpp"
#include "config/sweep/values.hpp"
#include "config/uses.hpp"
#include "core/hash.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace colossal {
namespace detail {
namespace {

constexpr std::size_t kIdDigits = 8;

/// What a trial sets at `key`, in the first trial that does; nullptr if none does.
const Assignment* first_set(const std::vector<Assignments>& trials, std::string_view key) {
  for (const Assignments& trial : trials) {
    const auto found = std::ranges::find(trial, key, &Assignment::key);
    if (found != trial.end()) {
      return &*found;
    }
  }
  return nullptr;
}

/// `vars` that a key of the base is made of are the sweep's, as the key is.
void refuse_vars_of(std::string_view key,
                    const Node* node,
                    const std::vector<Assignments>& trials,
                    Report& report) {
  std::string problem;
  for (const Piece& piece : split_uses(node == nullptr ? "" : node->text, problem)) {
    if (const Assignment* set = piece.use ? first_set(trials, piece.text) : nullptr) {
      Diagnostic& error = report.error("sweep-reserved",
                                       set->key,
                                       set->value.origin,
                                       fmt::format("a sweep cannot set {}", set->key));
      error.why = fmt::format("run.{} of the base is made of it, and is the sweep's", key);
      error.fix = "remove it";
    }
  }
}

std::vector<SweepTrial> make_trials(const SweepFile& file,
                                    const Node& base,
                                    const std::vector<Assignments>& expanded) {
  // As it is composed, in one form: its comments, places and order of keys say nothing.
  const std::string base_text = plain_json(base).dump();
  const std::string folder = std::filesystem::path(file.place.file).parent_path().string();
  std::vector<SweepTrial> trials;
  for (const Assignments& sets : expanded) {
    SweepTrial& trial = trials.emplace_back();
    trial.index = std::ssize(trials) - 1;
    nlohmann::json overrides = nlohmann::json::object();
    for (const Assignment& set : sets) {
      overrides[set.key] = plain_json(set.value);
      const Node value = with_absolute_paths(
          set.value,
          set.key,
          (std::filesystem::current_path() / folder).lexically_normal().string());
      trial.sets.push_back({set.key, flow_yaml(value), set.value.origin});
    }
    trial.overrides = overrides.dump();
    trial.id = sha256(trial.overrides + "\n" + base_text).substr(0, kIdDigits);
  }
  return trials;
}

/// Two trials with the same overrides are one.
void refuse_duplicates(const std::vector<SweepTrial>& trials,
                       const SweepFile& file,
                       Report& report) {
  std::map<std::string_view, std::int64_t> index_of;
  for (const SweepTrial& trial : trials) {
    const auto [first, fresh] = index_of.try_emplace(trial.overrides, trial.index);
    if (fresh) {
      continue;
    }
    Diagnostic& error = report.error(
        "duplicate-trial",
        "",
        trial.sets.empty() ? file.place : trial.sets.back().origin,
        fmt::format("trials {} and {} both set {}", first->second, trial.index, trial.overrides));
    error.fix = file.method == SweepMethod::random
                    ? "fewer samples, or method: grid for a few choices"
                    : "remove one of the equal values";
  }
}

/// The place in the sweep file instead of the --set that stands for it.
void name_sweep(Origin& origin, const SweepTrial& trial) {
  const auto number = static_cast<std::size_t>(origin.line);
  if (origin.file == "--set" && number >= 1 && number <= trial.sets.size()) {
    origin = trial.sets[number - 1].origin;
  }
}

/// Loads trials and keeps what is wrong with them, once where several share it.
class TrialChecker {
 public:
  TrialChecker(const SweepFile& file, const LoadOptions& options)
      : base_(file.base), options_(options), place_(file.place) {}

  void check(const SweepTrial& trial) {
    LoadOptions options = options_;
    for (const Related& set : trial.sets) {
      options.overrides.push_back({set.path + "=" + set.value});
    }
    Loaded loaded = load(base_, options);
    if (!options.world_size && !loaded.has_errors()) {  // nproc: auto
      options.world_size = std::max<std::int64_t>(loaded.config.parallel.data, 1);
      options.world_origin = "run.nproc of the sweep is auto";
      loaded = load(base_, options);
    }
    for (Diagnostic& item : loaded.diagnostics) {
      keep(std::move(item), trial);
    }
  }

  /// What was found, each with the trials that share it.
  void report_to(std::vector<Diagnostic>& items) {
    for (Found& one : found_) {
      const std::string others =
          one.count > 1 ? fmt::format(" and {} more", one.count - 1) : std::string();
      one.item.related.push_back({"trial", one.trial + others, place_});
      items.push_back(std::move(one.item));
    }
  }

 private:
  struct Found {
    Diagnostic item;
    std::string trial;
    std::int64_t count = 1;
  };

  void keep(Diagnostic item, const SweepTrial& trial) {
    if (item.severity == Diagnostic::Severity::note) {
      return;
    }
    name_sweep(item.origin, trial);
    for (Related& related : item.related) {
      name_sweep(related.origin, trial);
    }
    const std::string key =
        fmt::format("{}\n{}\n{}\n{}", item.id, item.path, place(item.origin), item.message);
    const auto [known, fresh] = index_of_.try_emplace(key, found_.size());
    if (!fresh) {
      ++found_[known->second].count;
      return;
    }
    found_.push_back({std::move(item), fmt::format("{} {}", trial.name(), trial.overrides)});
  }

  std::string base_;
  LoadOptions options_;
  Origin place_;
  std::map<std::string, std::size_t> index_of_;
  std::vector<Found> found_;
};

LoadOptions trial_options(const SweepFile& file) {
  LoadOptions options;
  options.run_time = "00000000-000000";  // each trial has its own, whose form is checked here
  options.world_size = file.run.nproc;
  if (file.run.nproc) {
    options.world_origin = fmt::format("run.nproc {} of the sweep", *file.run.nproc);
  }
  return options;
}

/// Everything up to the check of single trials.
void read(Sweep& sweep, SweepFile& file, const std::filesystem::path& yaml, Report& report) {
  Composer composer(report);
  file = read_sweep(yaml, composer, report);
  if (report.has_errors()) {
    return;
  }
  const std::optional<Node> base = composer.load(file.base, file.base_origin);
  const std::vector<Assignments> expanded = expand(file, report);
  if (!base || report.has_errors()) {
    return;
  }
  const Node* run = base->find("run");
  for (const std::string_view key : {"output_dir", "name"}) {
    refuse_vars_of(key, run == nullptr ? nullptr : run->find(key), expanded, report);
  }
  sweep.trials = make_trials(file, *base, expanded);
  refuse_duplicates(sweep.trials, file, report);
}

}  // namespace
}  // namespace detail

std::string SweepTrial::name() const {
  return fmt::format("{:04}-{}", index, id);
}

bool Sweep::has_errors() const {
  return std::any_of(diagnostics.begin(), diagnostics.end(), [](const Diagnostic& item) {
    return item.severity == Diagnostic::Severity::error;
  });
}

Sweep load_sweep(const std::filesystem::path& yaml) {
  Sweep sweep;
  detail::Report report;
  SweepFile file;
  detail::read(sweep, file, yaml, report);
  sweep.diagnostics = std::move(report.items());
  if (!sweep.has_errors()) {
    detail::TrialChecker checker(file, detail::trial_options(file));
    for (const SweepTrial& trial : sweep.trials) {
      checker.check(trial);
    }
    checker.report_to(sweep.diagnostics);
  }
  detail::settle(sweep.diagnostics, yaml.string());
  sweep.name = file.name;
  sweep.base = file.base;
  sweep.output_dir =
      file.run.output_dir.empty()
          ? std::filesystem::absolute(std::filesystem::path("sweeps") / file.name).string()
          : file.run.output_dir;
  sweep.parallel = file.run.parallel;
  sweep.retries = file.run.retries;
  sweep.stops_on_failure = file.run.on_failure == OnFailure::stop;
  const bool one = file.run.nproc == 1;
  if (!one) {
    sweep.nproc = file.run.nproc ? std::to_string(*file.run.nproc) : "auto";
  }
  return sweep;
}

}  // namespace colossal
