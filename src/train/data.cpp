// How are data opened, and which rules wait for them?
#include "train/data.hpp"

#include "config/batch_sizes.hpp"
#include "core/error.hpp"
#include "core/text.hpp"
#include "optim/optimizer.hpp"
#include "train/model.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

namespace colossal {
namespace {

constexpr std::string_view kTooSmall = "data-too-small";

/// Where the user wrote a value; "<default>" if nobody did.
Origin origin_of(const Loaded& loaded, const std::string& path) {
  const auto found = loaded.origins.find(path);
  if (found != loaded.origins.end()) {
    return found->second;
  }
  Origin unwritten;
  unwritten.file = "<default>";
  return unwritten;
}

Diagnostic error_at(const Loaded& loaded, std::string_view id, std::string path) {
  Diagnostic error;
  error.id = id;
  error.origin = origin_of(loaded, path);
  error.path = std::move(path);
  return error;
}

/// Names that optimizer.groups and no_decay select from: parameters with memory of their own, of
/// all stages.
std::vector<std::string> parameter_names(const Config& config) {
  Config single = config;
  single.parallel.data = 1;  // `validate` may not know it; blocks need a context that has one
  const ParallelContext alone(single);
  const ModelParts model = make_model(single, alone);
  std::vector<std::string> names;
  for (const ParamSpec& spec : param_uses(model.blocks).specs) {
    if (spec.tied_to.empty()) {
      names.push_back(spec.name);
    }
  }
  return names;
}

void check_patterns(const Loaded& loaded, std::vector<Diagnostic>& found) {
  const OptimizerConfig& optimizer = loaded.config.optimizer;
  const bool adapts = !optimizer.no_adapt.empty() && optimizer.no_adapt != optimizer.no_decay;
  if (optimizer.groups.empty() && !optimizer.no_decay_given && !adapts) {
    return;
  }
  const std::vector<std::string> names = parameter_names(loaded.config);
  for (const UnusedPattern& unused : unused_patterns(optimizer, names)) {
    const bool is_group = unused.path.starts_with("optimizer.groups");
    Diagnostic& error = found.emplace_back(error_at(loaded, "pattern-unused", unused.path));
    error.value = unused.pattern;
    error.message = fmt::format("'{}' matches no parameter{}",
                                unused.pattern,
                                is_group ? " that an earlier group left" : "");
    error.why = fmt::format("the model has {} parameters, from '{}' to '{}'",
                            names.size(),
                            names.front(),
                            names.back());
    error.fix = "correct it, or remove it";
  }
}

/// An error at the key of the batch that the user wrote.
Diagnostic error_at_batch(const Loaded& loaded, std::string_view id) {
  struct BatchKey {
    const char* path;
    std::int64_t TrainConfig::* value;
  };
  constexpr std::array<BatchKey, 3> kKeys = {
      {{"train.global_batch_size", &TrainConfig::global_batch_size},
       {"train.micro_batch_size", &TrainConfig::micro_batch_size},
       {"train.gradient_accumulation", &TrainConfig::gradient_accumulation}}};
  const auto* const written = std::ranges::find_if(kKeys, [&](const BatchKey& key) {
    const auto found = loaded.origins.find(key.path);
    return found != loaded.origins.end() && !found->second.file.starts_with("derived(");
  });
  const BatchKey& key = written == kKeys.end() ? kKeys.front() : *written;
  Diagnostic error = error_at(loaded, id, key.path);
  error.value = std::to_string(loaded.config.train.*key.value);
  return error;
}

/// Samples of one epoch; nothing (and an error) if there is no whole global batch.
std::optional<std::int64_t> epoch_samples(const Loaded& loaded,
                                          const Dataset& train,
                                          std::vector<Diagnostic>& found) {
  const Config& config = loaded.config;
  if (config.train.global_batch_size == 0) {
    return std::nullopt;  // follows from a number of processes that is not known yet
  }
  try {
    return SampleOrder(train.sources(), order_spec(config)).samples_per_epoch();
  } catch (const Error& too_small) {
    Diagnostic& error = found.emplace_back(error_at_batch(loaded, kTooSmall));
    error.message = too_small.what();
    error.why = train.summary();
    error.fix = fmt::format(
        "train.global_batch_size: {} or less, more data, or data.last_batch: wrap", train.size());
    return std::nullopt;
  }
}

/// The run ends with a step, so it may be longer than the epochs that were written.
void note_part_of_step(const Loaded& loaded,
                       std::int64_t steps,
                       std::int64_t epoch_samples,
                       std::vector<Diagnostic>& found) {
  const TrainConfig& train = loaded.config.train;
  const double samples = *train.epochs * static_cast<double>(epoch_samples);
  const std::int64_t seen = BatchSizes(train).samples_after(steps);
  constexpr double kRounding = 0.5;  // less than a sample is nothing but that of doubles
  if (static_cast<double>(seen) - samples < kRounding) {
    return;
  }
  Diagnostic& note = found.emplace_back();
  note.id = "tokens-not-multiple";
  note.path = "train.epochs";
  note.origin = origin_of(loaded, note.path);
  note.severity = Diagnostic::Severity::note;
  note.value = fmt::format("{}", *train.epochs);
  note.message =
      fmt::format("{} of {} rounded up to {} of {}{}",
                  *train.epochs == 1 ? "1 epoch" : note.value + " epochs",
                  counted(epoch_samples, "sample") + (*train.epochs == 1 ? " is" : " are"),
                  counted(steps, "step"),
                  train.batch_ramp ? "up to " : "",
                  train.global_batch_size);
}

int exit_code_of(const std::vector<Diagnostic>& diagnostics) {
  int code = 0;
  for (const Diagnostic& item : diagnostics) {
    if (item.severity == Diagnostic::Severity::error) {
      const ErrorKind kind = item.id == kTooSmall ? ErrorKind::data : ErrorKind::config;
      code = code == 0 ? static_cast<int>(kind) : std::min(code, static_cast<int>(kind));
    }
  }
  return code;
}

}  // namespace

bool evaluates(const Config& config) {
  return !config.data.eval.empty() || config.eval.every_steps || config.eval.at_start ||
         config.eval.at_end.value_or(false);
}

OrderSpec order_spec(const Config& config) {
  return {.global_batch = config.train.global_batch_size,
          .seed = static_cast<std::uint64_t>(config.run.seed),
          .shuffle = config.data.shuffle,
          .last_batch = config.data.last_batch};
}

Config checked_elsewhere(Config config) {
  if (config.data.validate == DataValidation::full) {
    config.data.validate = DataValidation::header;
  }
  return config;
}

std::unique_ptr<const Dataset> open_split(const Config& config, Split split) {
  const bool rows = config.model.type == ModelType::mlp;
  return blaming(split == Split::train ? "data.train" : "data.eval", [&] {
    return open_dataset({.data = config.data,
                         .vocab_size = rows ? config.model.out_features : config.model.vocab_size,
                         .seed = config.run.seed,
                         .split = split,
                         .num_features = rows ? config.model.in_features : 0,
                         .threads = at::get_num_threads()});
  });
}

namespace {

bool is_missing(const std::string& path) {
  std::error_code error;
  const bool pattern = path.find_first_of("*?[") != std::string::npos;
  return !pattern && !std::filesystem::exists(path, error) && !error;
}

/// Several files that are not there are told together; one alone is told where it is opened, with
/// what lies near it.
void refuse_missing_files(const Config& config) {
  std::string missing;
  std::string first_key;
  int count = 0;
  const auto look = [&](const char* key, const std::vector<DataSource>& items) {
    for (const DataSource& item : items) {
      const bool absent = is_missing(item.path);
      count += absent ? 1 : 0;
      missing += absent ? fmt::format("\n  {}  {}", key, item.path) : "";
      first_key = absent && first_key.empty() ? key : first_key;
    }
  };
  look("data.train", config.data.train);
  if (evaluates(config)) {
    look("data.eval", config.data.eval);
  }
  blaming(first_key, [&] {
    check(count < 2,
          ErrorKind::data,
          "file-not-found",
          "{} data files do not exist{}\n  fix   check the names; relative ones start at the file "
          "that contains them",
          count,
          missing);
  });
}

}  // namespace

OpenedData open_data(const Config& config) {
  refuse_missing_files(config);
  OpenedData opened;
  opened.train = open_split(config, Split::train);
  if (evaluates(config)) {
    opened.eval = open_split(config, Split::eval);
  }
  return opened;
}

DataFindings check_with_data(const Loaded& loaded, const Dataset& train) {
  DataFindings findings;
  std::vector<Diagnostic>& found = findings.diagnostics;
  check_patterns(loaded, found);
  const std::optional<std::int64_t> samples = epoch_samples(loaded, train, found);
  if (samples && loaded.config.train.epochs) {
    const std::int64_t steps = total_steps(loaded.config, *samples);
    std::ranges::move(check_length(loaded, steps), std::back_inserter(found));
    note_part_of_step(loaded, steps, *samples, found);
  }
  std::ranges::stable_sort(found, {}, [](const Diagnostic& item) {
    return std::tuple(item.origin.file, item.origin.line, item.origin.col);
  });
  for (Diagnostic& item : found) {
    for (std::string* text : {&item.value, &item.message, &item.why}) {
      *text = redact(loaded.config.secrets, *text);
    }
  }
  findings.exit_code = exit_code_of(found);
  return findings;
}

}  // namespace colossal
