// Do data types, loss scale and recomputation fit together?
#include "config/rules/rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

namespace colossal::detail {
namespace {

bool recomputes(const ActivationCheckpointConfig& config, std::string_view word) {
  return config.mode == RecomputeMode::selective &&
         std::find(config.recompute.begin(), config.recompute.end(), word) !=
             config.recompute.end();
}

/// The key of the loss scale that somebody wrote, init before others; init if only the mapping was.
std::string written_loss_scale(const Origins& origins) {
  const std::string section = "train.loss_scale.";
  std::string first = section + "init";
  if (!origins.given(first)) {
    const auto& values = origins.values();
    const auto it = values.lower_bound(section);
    first = it != values.end() && it->first.starts_with(section) ? it->first : first;
  }
  return first;
}

void loss_scale_is_used(const RuleInput& in) {
  if (in.config.train.loss_scale && in.config.train.precision != Precision::fp16) {
    report_unused(in,
                  written_loss_scale(in.origins),
                  "train.precision",
                  "only fp16 has a range so small that gradients need a scale");
  }
}

void loss_scale_is_in_its_range(const RuleInput& in) {
  const LossScaleConfig scale = in.config.train.loss_scale.value_or(LossScaleConfig{});
  if (scale.min <= scale.init && scale.init <= scale.max) {
    return;
  }
  Diagnostic& error = in.error("loss-scale-range",
                               "train.loss_scale.init",
                               fmt::format("the loss scale {} is not between its bounds {} and {}",
                                           scale.init,
                                           scale.min,
                                           scale.max));
  error.related.push_back(in.with("train.loss_scale.min"));
  error.related.push_back(in.with("train.loss_scale.max"));
  error.fix = "choose min <= init <= max";
}

void fp16_is_slow_here(const RuleInput& in) {
  if (in.config.train.precision != Precision::fp16 || in.config.run.device == DeviceKind::cuda) {
    return;
  }
  Diagnostic& warning = in.warning("fp16-slow",
                                   "train.precision",
                                   "fp16 is slower than fp32 on a cpu, which multiplies in fp32");
  warning.fix = "precision: bf16 is faster and needs no loss scale";
}

void tf32_needs_a_gpu(const RuleInput& in) {
  if (in.config.train.precision != Precision::tf32 || in.config.run.device != DeviceKind::cpu) {
    return;
  }
  Diagnostic& error = in.error("gpu-only", "train.precision", "only a GPU multiplies in tf32");
  error.related.push_back(in.with("run.device"));
  error.fix = "precision: fp32";
}

void recomputation_is_used(const RuleInput& in) {
  const ActivationCheckpointConfig& config = in.config.train.activation_checkpoint;
  const ActivationCheckpointConfig defaults;
  const char* mode = "train.activation_checkpoint.mode";
  if (config.mode != RecomputeMode::full) {
    const char* reason = "only mode full runs whole blocks again";
    if (config.every != defaults.every) {
      report_unused(in, "train.activation_checkpoint.every", mode, reason);
    }
    if (config.blocks) {
      report_unused(in, "train.activation_checkpoint.blocks", mode, reason);
    }
    if (config.offload != defaults.offload) {
      report_unused(in, "train.activation_checkpoint.offload", mode, reason);
    }
  }
  if (config.mode != RecomputeMode::selective && config.recompute != defaults.recompute) {
    report_unused(in,
                  "train.activation_checkpoint.recompute",
                  mode,
                  "only mode selective chooses among operations");
  }
}

void selection_has_an_effect(const RuleInput& in) {
  const ActivationCheckpointConfig& config = in.config.train.activation_checkpoint;
  if (config.mode != RecomputeMode::selective) {
    return;
  }
  if (config.recompute.empty()) {
    report_unused(in,
                  "train.activation_checkpoint.mode",
                  "train.activation_checkpoint.recompute",
                  "no operation is named");
  } else if (in.config.model.type == ModelType::mlp) {
    report_unused(in,
                  "train.activation_checkpoint.mode",
                  "model.type",
                  "the results of its layers are the inputs of its blocks, which are kept");
  }
}

void attention_can_run_again(const RuleInput& in) {
  const ModelConfig& model = in.config.model;
  const bool math = model.attention == AttentionKind::math || model.attention_dropout > 0;
  if (!recomputes(in.config.train.activation_checkpoint, "attention") || !math) {
    return;
  }
  Diagnostic& error =
      in.error("recompute-attention",
               "train.activation_checkpoint.recompute",
               "attention that stores its probabilities is not computed again by itself");
  error.related.push_back(
      in.with(model.attention_dropout > 0 ? "model.attention_dropout" : "model.attention"));
  error.fix = "leave attention out, or use mode: full";
}

constexpr std::array<Rule, 7> kPrecisionRules = {loss_scale_is_used,
                                                 loss_scale_is_in_its_range,
                                                 fp16_is_slow_here,
                                                 tf32_needs_a_gpu,
                                                 recomputation_is_used,
                                                 selection_has_an_effect,
                                                 attention_can_run_again};

}  // namespace

std::span<const Rule> precision_rules() {
  return kPrecisionRules;
}

}  // namespace colossal::detail
