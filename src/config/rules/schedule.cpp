// Do the things that happen at certain steps fit the length of the run?
#include "config/schedule.hpp"

#include "config/batch_sizes.hpp"
#include "config/rules/rules.hpp"
#include "core/text.hpp"

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
      fmt::format(
          "eval.every_steps {} exceeds the {} of the run", *every, counted(*steps, "step")));
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
                 fmt::format("logging.profiler.start_step {} exceeds the {} of the run",
                             profiler->start_step,
                             counted(*steps, "step")));
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
  const std::int64_t per_sample = train.tokens ? in.config.data.seq_length : 1;
  const std::int64_t unit = train.global_batch_size * per_sample;
  const std::int64_t budget = train.tokens ? *train.tokens : *train.samples;
  if (budget == BatchSizes(train).samples_after(*steps) * per_sample) {
    return;
  }
  Diagnostic& note = in.note("tokens-not-multiple",
                             budget_key(train),
                             fmt::format("{} {} rounded up to {} of {}{}",
                                         counted(budget, train.tokens ? "token" : "sample"),
                                         budget == 1 ? "is" : "are",
                                         counted(*steps, "step"),
                                         train.batch_ramp ? "up to " : "",
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

/// Samples of one micro-batch of all replicas, as far as both are known.
std::int64_t samples_at_once(const Config& config) {
  return std::max<std::int64_t>(1, config.parallel.data) *
         std::max<std::int64_t>(1, config.train.micro_batch_size);
}

/// One size of the ramp that is not made of whole micro-batches.
void report_ramp_size(const RuleInput& in, std::string_view path, std::int64_t size) {
  const std::int64_t unit = samples_at_once(in.config);
  Diagnostic& error = in.error(
      "batch-ramp",
      path,
      fmt::format("{} {} is not a multiple of {} = data x micro_batch_size", path, size, unit));
  error.related.push_back(in.with("train.micro_batch_size"));
  error.related.push_back(in.with("parallel.data"));
  error.why = "each replica takes the same number of whole micro-batches in every step";
  const std::int64_t below = size / unit * unit;
  error.fix = below == 0 ? fmt::format("{} or a smaller micro_batch_size", unit)
                         : fmt::format("{} or {}", below, below + unit);
}

void ramp_is_whole(const RuleInput& in) {
  const auto& ramp = in.config.train.batch_ramp;
  const std::int64_t unit = samples_at_once(in.config);
  if (!ramp || in.config.train.global_batch_size == 0) {
    return;
  }
  if (ramp->start % unit != 0) {
    report_ramp_size(in, "train.batch_ramp.start", ramp->start);
  }
  if (ramp->increment % unit != 0) {
    report_ramp_size(in, "train.batch_ramp.increment", ramp->increment);
  }
}

void ramp_leads_to_the_batch(const RuleInput& in) {
  const auto& ramp = in.config.train.batch_ramp;
  const std::int64_t full = in.config.train.global_batch_size;
  if (!ramp || full == 0) {
    return;
  }
  const std::int64_t rise = full - ramp->start;
  if (rise > 0 && rise % ramp->increment == 0) {
    return;
  }
  Diagnostic& error =
      rise <= 0 ? in.error("batch-ramp",
                           "train.batch_ramp.start",
                           fmt::format("the ramp starts at {} samples, which is not less than "
                                       "global_batch_size {}",
                                       ramp->start,
                                       full))
                : in.error("batch-ramp",
                           "train.batch_ramp.increment",
                           fmt::format("steps of {} do not lead from {} to global_batch_size {}",
                                       ramp->increment,
                                       ramp->start,
                                       full));
  error.related.push_back(in.with("train.global_batch_size"));
  const std::int64_t unit = samples_at_once(in.config);
  if (rise <= 0) {
    error.fix = "a smaller start, or remove batch_ramp";
  } else if (rise % unit == 0 && unit > 1) {
    error.fix = fmt::format(
        "increment: {} times {}", unit, nearest_divisors(rise / unit, ramp->increment / unit));
  } else {
    error.fix = "increment: " + nearest_divisors(rise, ramp->increment);
  }
}

/// The last batch of an epoch would be anywhere inside of a step.
void ramp_pads_nothing(const RuleInput& in) {
  if (!in.config.train.batch_ramp || in.config.data.last_batch != LastBatch::pad) {
    return;
  }
  Diagnostic& error = in.error("batch-ramp",
                               "data.last_batch",
                               "data.last_batch pad cannot fill the last step of an epoch: with "
                               "train.batch_ramp steps do not end where epochs do");
  error.related.push_back(in.with("train.batch_ramp.start"));
  error.fix = "last_batch: drop | last_batch: wrap";
}

constexpr std::array<Rule, 9> kScheduleRules = {rate_is_plausible,
                                                evaluation_runs,
                                                profiler_runs,
                                                something_is_saved,
                                                budget_is_whole,
                                                run_is_countable,
                                                ramp_is_whole,
                                                ramp_leads_to_the_batch,
                                                ramp_pads_nothing};

}  // namespace

std::span<const Rule> schedule_rules() {
  return kScheduleRules;
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
