// Does the learning rate reach its peak and do what its keys say?
#include "config/rules/rules.hpp"
#include "config/schedule.hpp"
#include "core/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

namespace colossal::detail {
namespace {

/// The key that gives the warm-up its length.
std::string_view warmup_key(const SchedulerConfig& scheduler) {
  return scheduler.warmup_ratio ? "scheduler.warmup_ratio" : "scheduler.warmup_steps";
}

/// Steps of warm-up; nothing while they depend on a length of the run that is not known.
std::optional<std::int64_t> known_warmup(const RuleInput& in) {
  const SchedulerConfig& scheduler = in.config.scheduler;
  if (!scheduler.warmup_ratio) {
    return scheduler.warmup_steps.value_or(0);
  }
  const auto steps = in.steps();
  return steps ? std::optional(warmup_steps(scheduler, *steps)) : std::nullopt;
}

void warmup_fits_run(const RuleInput& in) {
  const auto steps = in.steps();
  const auto& warmup = in.config.scheduler.warmup_steps;
  if (!steps || !warmup || *warmup <= *steps) {
    return;
  }
  Diagnostic& error = in.error(
      "warmup-too-long",
      "scheduler.warmup_steps",
      fmt::format("warmup_steps {} exceeds the {} of the run", *warmup, counted(*steps, "step")));
  error.related.push_back(in.with(budget_key(in.config.train)));
  error.why = "the learning rate would never reach optimizer.lr";
  error.fix = fmt::format("warmup_steps: {} or less, or warmup_ratio: 0.1", *steps);
}

void warmup_ends_before_the_fall(const RuleInput& in) {
  const SchedulerConfig& scheduler = in.config.scheduler;
  const auto warmup = known_warmup(in);
  const auto steps = in.steps();
  const bool wsd = scheduler.type == SchedulerType::wsd && steps;
  const bool step = scheduler.type == SchedulerType::step;
  if (!warmup || (!wsd && !step)) {
    return;
  }
  const double fall = wsd ? wsd_decay_start(scheduler, *steps)
                          : static_cast<double>(scheduler.step_size.value_or(0));
  const auto end = static_cast<double>(*warmup);
  if (wsd ? end <= fall : end < fall) {
    return;
  }
  Diagnostic& error = in.error("warmup-too-long",
                               warmup_key(scheduler),
                               fmt::format("the warm-up of {} does not end before the {} at "
                                           "step {:.6g}",
                                           counted(*warmup, "step"),
                                           wsd ? "decay starts" : "first drop",
                                           fall));
  error.related.push_back(in.with(wsd ? "scheduler.stable_ratio" : "scheduler.step_size"));
  error.why = "the learning rate would never reach optimizer.lr";
  error.fix = wsd ? "a shorter warm-up, or a larger stable_ratio"
                  : "a shorter warm-up, or a larger step_size";
}

void milestones_rise(const RuleInput& in) {
  const std::vector<std::int64_t>& milestones = in.config.scheduler.milestones;
  const auto fall = std::ranges::adjacent_find(milestones, std::greater_equal());
  if (fall == milestones.end()) {
    return;
  }
  Diagnostic& error = in.error(
      "milestones-order",
      "scheduler.milestones",
      fmt::format("milestone {} does not come after milestone {}", *std::next(fall), *fall));
  error.why = "each milestone multiplies the learning rate by gamma once";
  error.fix = "milestones in rising order, each written once";
}

void milestones_follow_warmup(const RuleInput& in) {
  const std::vector<std::int64_t>& milestones = in.config.scheduler.milestones;
  const auto warmup = known_warmup(in);
  if (milestones.empty() || !warmup || milestones.front() > *warmup) {
    return;
  }
  Diagnostic& error = in.error("milestones-order",
                               "scheduler.milestones",
                               fmt::format("milestone {} lies inside the warm-up of {}",
                                           milestones.front(),
                                           counted(*warmup, "step")));
  error.related.push_back(in.with(warmup_key(in.config.scheduler)));
  error.why = "milestones count from the first step of the run, warm-up included";
  error.fix = fmt::format("a first milestone above {}, or a shorter warm-up", *warmup);
}

void milestones_are_reached(const RuleInput& in) {
  const std::vector<std::int64_t>& milestones = in.config.scheduler.milestones;
  const auto steps = in.steps();
  if (milestones.empty() || !steps || milestones.back() < *steps) {
    return;
  }
  Diagnostic& warning = in.warning(
      "never-runs",
      "scheduler.milestones",
      fmt::format(
          "milestone {} is beyond the {} of the run", milestones.back(), counted(*steps, "step")));
  warning.related.push_back(in.with(budget_key(in.config.train)));
  warning.fix = fmt::format("milestones below {}", *steps);
}

void inverse_sqrt_has_warmup(const RuleInput& in) {
  const SchedulerConfig& scheduler = in.config.scheduler;
  const auto warmup = known_warmup(in);
  if (scheduler.type != SchedulerType::inverse_sqrt || !warmup || *warmup > 0) {
    return;
  }
  Diagnostic& error = in.error("warmup-required",
                               warmup_key(scheduler),
                               "scheduler.type inverse_sqrt needs a warm-up of at least one step");
  error.related.push_back(in.with("scheduler.type"));
  error.why = "it falls as sqrt(W / k) from the end of a warm-up of W steps";
  error.fix = "add `warmup_steps: 100` to `scheduler`";
}

/// one_cycle moves the momentum itself, so that a number of the user's own would be ignored; 0 is
/// respected.
void cycle_sets_momentum(const RuleInput& in) {
  const OptimizerConfig& optimizer = in.config.optimizer;
  if (in.config.scheduler.type != SchedulerType::one_cycle) {
    return;
  }
  const OptimizerConfig defaults;
  const bool sgd = optimizer.type == OptimizerType::sgd || optimizer.type == OptimizerType::lars;
  const double own = sgd ? optimizer.momentum : optimizer.betas.front();
  if (own == 0 || own == (sgd ? defaults.momentum : defaults.betas.front())) {
    return;
  }
  const char* key = sgd ? "optimizer.momentum" : "optimizer.betas";
  Diagnostic& error =
      in.error("unused-section",
               key,
               fmt::format("{} {} has no effect: one_cycle moves it from 0.95 to 0.85 and back",
                           sgd ? "momentum" : "the first beta",
                           own));
  error.related.push_back(in.with("scheduler.type"));
  error.fix = sgd ? "remove it, or momentum: 0 for none"
                  : "betas with a first number of 0.9 (the default), or 0 for none";
}

constexpr std::array<Rule, 7> kSchedulerRules = {warmup_fits_run,
                                                 warmup_ends_before_the_fall,
                                                 milestones_rise,
                                                 milestones_follow_warmup,
                                                 milestones_are_reached,
                                                 inverse_sqrt_has_warmup,
                                                 cycle_sets_momentum};

}  // namespace

std::span<const Rule> scheduler_rules() {
  return kSchedulerRules;
}

}  // namespace colossal::detail
