// Do the things that happen at certain steps fit the length of the run?
#include "config/schedule.hpp"

#include "config/rules/rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace colossal::detail {
namespace {

void rate_is_plausible(const RuleInput& in) {
  const OptimizerConfig& optimizer = in.config.optimizer;
  const double lr = effective_lr(in.config);
  // A step of sgd is as long as the gradient is, and lars multiplies by its small
  // trust_coefficient: no rate is implausible by itself.
  if (lr <= 1 || optimizer.type == OptimizerType::sgd || optimizer.type == OptimizerType::lars) {
    return;
  }
  const bool scaled = lr != optimizer.lr;
  Diagnostic& warning = in.warning(
      "lr-too-large",
      "optimizer.lr",
      fmt::format(
          "optimizer.lr {:.6g} is very large{}", lr, scaled ? " (scaled with the batch)" : ""));
  warning.why = "one step moves every weight by about lr";
  warning.fix = "usual values are 1e-5 to 1e-2";
}

void evaluation_runs(const RuleInput& in) {
  const auto steps = in.steps();
  const auto& every = in.config.eval.every_steps;
  if (!steps || !every || *every <= *steps) {
    return;
  }
  Diagnostic& warning = in.warning(
      "never-runs",
      "eval.every_steps",
      fmt::format("eval.every_steps {} exceeds the {} steps of the run", *every, *steps));
  warning.related.push_back(in.with(budget_key(in.config.train)));
  warning.fix = fmt::format("every_steps: {} or less", *steps);
}

void profiler_runs(const RuleInput& in) {
  const auto steps = in.steps();
  const auto& profiler = in.config.logging.profiler;
  if (!steps || !profiler || profiler->start_step <= *steps) {
    return;
  }
  Diagnostic& warning =
      in.warning("never-runs",
                 "logging.profiler.start_step",
                 fmt::format("logging.profiler.start_step {} exceeds the {} steps of the run",
                             profiler->start_step,
                             *steps));
  warning.related.push_back(in.with(budget_key(in.config.train)));
  warning.fix = fmt::format("start_step: {} or less", *steps);
}

void something_is_saved(const RuleInput& in) {
  const CheckpointConfig& checkpoint = in.config.checkpoint;
  const auto steps = in.steps();
  const bool periodic = checkpoint.every_steps && (!steps || *checkpoint.every_steps <= *steps);
  if (checkpoint.at_end || periodic || checkpoint.every_time_seconds) {
    return;
  }
  Diagnostic& warning =
      in.warning("checkpoint-none", "checkpoint.at_end", "this run never saves a checkpoint");
  warning.why = "at_end is false and no every_steps within the run, and no every_time, is given";
  warning.fix = "checkpoint: {at_end: true} or a shorter every_steps";
}

/// Warns nobody, but the run is longer than what was written.
void budget_is_whole(const RuleInput& in) {
  const TrainConfig& train = in.config.train;
  const auto steps = in.steps();
  if (!steps || train.steps || train.epochs) {
    return;
  }
  const std::int64_t unit =
      train.global_batch_size * (train.tokens ? in.config.data.seq_length : 1);
  const std::int64_t budget = train.tokens ? *train.tokens : *train.samples;
  if (budget % unit == 0) {
    return;
  }
  Diagnostic& note = in.note("tokens-not-multiple",
                             budget_key(train),
                             fmt::format("{} {} are rounded up to {} steps of {}",
                                         budget,
                                         train.tokens ? "tokens" : "samples",
                                         *steps,
                                         unit));
  note.related.push_back(in.with("train.global_batch_size"));
}

/// Samples and tokens of the whole run are counted in 64 bits.
void run_is_countable(const RuleInput& in) {
  constexpr double kMost = 1e18;
  const TrainConfig& train = in.config.train;
  const double per_step =
      static_cast<double>(train.global_batch_size) * static_cast<double>(in.config.data.seq_length);
  const double tokens = static_cast<double>(in.steps().value_or(0)) * per_step;
  if (tokens <= kMost) {
    return;
  }
  Diagnostic& error =
      in.error("out-of-range",
               budget_key(train),
               fmt::format("the run has {:.1e} tokens, the most are {:.0e}", tokens, kMost));
  error.related.push_back(in.with("train.global_batch_size"));
  error.fix = "choose a shorter run";
}

constexpr std::array<Rule, 6> kRules = {rate_is_plausible,
                                        evaluation_runs,
                                        profiler_runs,
                                        something_is_saved,
                                        budget_is_whole,
                                        run_is_countable};

}  // namespace

std::span<const Rule> schedule_rules() {
  return kRules;
}

}  // namespace colossal::detail

namespace colossal {

std::vector<Diagnostic> check_length(const Loaded& loaded, std::int64_t steps) {
  detail::Report report;
  detail::Origins origins;
  for (const auto& [path, origin] : loaded.origins) {
    origins.set(path, origin);
  }
  const detail::DeriveInput host{.stem = "", .world_size = {}, .world_origin = "", .steps = steps};
  for (const auto& rules :
       {detail::scheduler_rules(), detail::schedule_rules(), detail::checkpoint_rules()}) {
    for (const detail::Rule rule : rules) {
      rule({loaded.config, origins, host, report});
    }
  }
  std::erase_if(report.items(), [&](const Diagnostic& found) {
    return std::ranges::any_of(loaded.diagnostics, [&](const Diagnostic& known) {
      return known.id == found.id && known.path == found.path;
    });
  });
  return std::move(report.items());
}

}  // namespace colossal
