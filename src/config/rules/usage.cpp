// Does every setting have an effect, and does everything that is asked for have its input?
#include "config/rules/rules.hpp"
#include "core/text.hpp"

#include <fmt/format.h>

#include <array>

namespace colossal::detail {
namespace {

void evaluation_has_data(const RuleInput& in) {
  const EvalConfig& eval = in.config.eval;
  const bool at_end = eval.at_end.value_or(false);
  const bool has_data =  // synthetic data come with an evaluation split
      !in.config.data.eval.empty() || in.config.data.type == DataType::synthetic;
  if (has_data || (!eval.every_steps && !at_end && !eval.at_start)) {
    return;
  }
  const char* key = eval.every_steps ? "eval.every_steps"
                    : at_end         ? "eval.at_end"
                                     : "eval.at_start";
  Diagnostic& error =
      in.error("eval-needs-data", key, fmt::format("{} is set, but data.eval is not", key));
  error.fix = fmt::format("add `eval: [FILE]` to `data`, or remove {}", key);
}

void batches_limit_an_evaluation(const RuleInput& in) {
  const EvalConfig& eval = in.config.eval;
  const bool runs = eval.every_steps || eval.at_end.value_or(false) || eval.at_start;
  if (eval.max_batches && !runs) {
    report_unused(in, "eval.max_batches", "eval.at_end", "no evaluation is configured");
  }
}

void skips_are_counted(const RuleInput& in) {
  const TrainConfig& train = in.config.train;
  if (train.nonfinite == NonFinite::stop && train.precision != Precision::fp16 &&
      train.max_skipped_steps != TrainConfig{}.max_skipped_steps) {
    report_unused(in, "train.max_skipped_steps", "train.nonfinite", "no step is ever skipped");
  }
}

void warmup_start_has_warmup(const RuleInput& in) {
  const SchedulerConfig& scheduler = in.config.scheduler;
  const bool warmup =
      scheduler.warmup_steps.value_or(0) > 0 || scheduler.warmup_ratio.value_or(0) > 0;
  if (scheduler.warmup_start != 0 && !warmup) {
    report_unused(in, "scheduler.warmup_start", "scheduler.warmup_steps", "there is no warm-up");
  }
}

void logged_ranks_exist(const RuleInput& in) {
  const auto& world = in.host.world_size;
  for (std::size_t i = 0; world && i < in.config.logging.ranks.size(); ++i) {
    const std::int64_t rank = in.config.logging.ranks[i];
    if (rank >= *world) {
      Diagnostic& error = in.error("out-of-range",
                                   "logging.ranks",
                                   fmt::format("logging.ranks names rank {}, but the run has {}",
                                               rank,
                                               counted(*world, "process", "processes")));
      error.fix = fmt::format("name ranks below {}, or write all", *world);
    }
  }
}

void nesterov_has_momentum(const RuleInput& in) {
  const OptimizerConfig& optimizer = in.config.optimizer;
  const bool moves = optimizer.type == OptimizerType::sgd || optimizer.type == OptimizerType::lars;
  if (moves && optimizer.nesterov && optimizer.momentum == 0) {
    report_unused(in, "optimizer.nesterov", "optimizer.momentum", "there is no momentum");
  }
}

constexpr std::array<Rule, 6> kUsageRules = {evaluation_has_data,
                                             logged_ranks_exist,
                                             batches_limit_an_evaluation,
                                             skips_are_counted,
                                             warmup_start_has_warmup,
                                             nesterov_has_momentum};

}  // namespace

std::span<const Rule> usage_rules() {
  return kUsageRules;
}

}  // namespace colossal::detail
