// Do the saves that are asked for happen, and can what is asked of them be had?
#include "config/rules/rules.hpp"

#include <fmt/format.h>

#include <array>
#include <numeric>
#include <optional>
#include <string>

namespace colossal::detail {
namespace {

bool evaluates(const EvalConfig& eval) {
  return eval.every_steps || eval.at_end.value_or(false) || eval.at_start;
}

/// Whether some multiple of both numbers is within the run; one whose length is not known yet is
/// given the benefit of the doubt.
bool meet(std::int64_t a, std::int64_t b, std::optional<std::int64_t> steps) {
  return !steps || a / std::gcd(a, b) <= *steps / b;
}

/// Whether the last step is one of every so many; that of a run whose length is not known may be.
bool ends_with(std::optional<std::int64_t> every, std::optional<std::int64_t> steps) {
  return every && (!steps || *steps % *every == 0);
}

/// Whether a step can be both evaluated and saved.
bool saves_what_is_measured(const RuleInput& in) {
  const CheckpointConfig& checkpoint = in.config.checkpoint;
  const EvalConfig& eval = in.config.eval;
  const std::optional<std::int64_t> steps = in.steps();
  const bool ends_measured = eval.at_end.value_or(false) || ends_with(eval.every_steps, steps);
  const bool ends_saved = checkpoint.at_end || ends_with(checkpoint.every_steps, steps);
  const bool by_time = checkpoint.every_time_seconds && evaluates(eval);
  const bool by_steps = checkpoint.every_steps && eval.every_steps &&
                        meet(*checkpoint.every_steps, *eval.every_steps, steps);
  return (ends_saved && ends_measured) || by_time || by_steps;
}

/// The other end would keep the worst one.
void best_is_not_worst(const RuleInput& in) {
  const auto& best = in.config.checkpoint.keep_best;
  const bool rises = best && best->metric == "eval/accuracy";
  if (!best || rises == (best->mode == BestMode::max)) {
    return;
  }
  Diagnostic& error = in.error(
      "keep-best-metric",
      "checkpoint.keep_best.mode",
      fmt::format("the {} {} is the worst one", rises ? "lowest" : "highest", best->metric));
  error.related.push_back(in.with("checkpoint.keep_best.metric"));
  error.fix = rises ? "mode: max" : "mode: min";
}

void best_can_be_told(const RuleInput& in) {
  const auto& best = in.config.checkpoint.keep_best;
  if (!best || best->metric == "train/loss") {
    return;
  }
  constexpr std::string_view kKey = "checkpoint.keep_best.metric";
  const bool mlp = in.config.model.type == ModelType::mlp;
  if (best->metric == (mlp ? "eval/ppl" : "eval/accuracy")) {
    Diagnostic& error = in.error(
        "keep-best-metric",
        kKey,
        fmt::format("{} has no {}", mlp ? "a classifier" : "a language model", best->metric));
    error.related.push_back(in.with("model.type"));
    error.fix = fmt::format("train/loss, eval/loss or {}", mlp ? "eval/accuracy" : "eval/ppl");
    return;
  }
  if (saves_what_is_measured(in)) {
    return;
  }
  Diagnostic& error =
      in.error("keep-best-metric",
               kKey,
               fmt::format("{} is measured at no step that is saved", best->metric));
  error.related.push_back(in.with("eval.every_steps"));
  error.related.push_back(in.with("checkpoint.every_steps"));
  error.why = "a checkpoint is judged by an evaluation of its own step";
  error.fix = "eval.every_steps equal to checkpoint.every_steps";
}

void copies_fit_into_host_memory(const RuleInput& in) {
  const auto& gemini = in.config.parallel.gemini;
  if (!in.config.checkpoint.async || !gemini || !gemini->nvme || gemini->nvme->fraction == 0) {
    return;
  }
  Diagnostic& error =
      in.error("async-nvme", "checkpoint.async", "states on disk cannot be saved beside training");
  error.related.push_back(in.with("parallel.gemini.nvme.fraction"));
  error.why = "the copy that is written would hold in host memory what was put on disk";
  error.fix = "checkpoint: {async: false}";
}

void something_is_saved_aside(const RuleInput& in) {
  if (in.config.checkpoint.async && !in.config.checkpoint.has_cadence()) {
    report_unused(in,
                  "checkpoint.async",
                  "checkpoint.every_steps",
                  "the last save has no training beside it");
  }
}

void export_has_weights(const RuleInput& in) {
  const CheckpointConfig& checkpoint = in.config.checkpoint;
  if (checkpoint.export_at_end == ExportFormat::none || checkpoint.at_end) {
    return;
  }
  Diagnostic& error = in.error("export-at-end",
                               "checkpoint.export_at_end",
                               "the weights that shall be exported are not saved");
  error.related.push_back(in.with("checkpoint.at_end"));
  error.fix = "checkpoint: {at_end: true}";
}

void stopped_runs_go_on(const RuleInput& in) {
  if (in.config.checkpoint.content != CheckpointContent::weights) {
    return;
  }
  Diagnostic& warning = in.warning("weights-only-run",
                                   "checkpoint.content",
                                   "a run that is stopped or fails cannot be continued");
  warning.why = "its checkpoints have no optimizer state and no position in the data";
  warning.fix = "checkpoint: {content: full} unless it can start again from its first step";
}

constexpr std::array<Rule, 6> kCheckpointRules = {best_can_be_told,
                                                  best_is_not_worst,
                                                  copies_fit_into_host_memory,
                                                  something_is_saved_aside,
                                                  export_has_weights,
                                                  stopped_runs_go_on};

}  // namespace

std::span<const Rule> checkpoint_rules() {
  return kCheckpointRules;
}

}  // namespace colossal::detail
