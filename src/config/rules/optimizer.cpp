// Do the settings of the optimizer fit each other?
#include "config/rules/rules.hpp"
#include "config/words.hpp"

#include <fmt/format.h>

#include <array>

namespace colossal::detail {
namespace {

void scaled_rate_has_a_base(const RuleInput& in) {
  const OptimizerConfig& optimizer = in.config.optimizer;
  const bool scaled = optimizer.lr_scaling != LrScaling::none;
  if (scaled && !optimizer.base_batch_size) {
    Diagnostic& error = in.error(
        "required",
        "optimizer.base_batch_size",
        fmt::format("lr_scaling {} needs optimizer.base_batch_size", word(optimizer.lr_scaling)));
    error.related.push_back(in.with("optimizer.lr_scaling"));
    error.why = "the rate grows with the batch, from the batch that lr was chosen for";
    error.fix = "add `base_batch_size: 256` to `optimizer`";
  } else if (!scaled && optimizer.base_batch_size) {
    Diagnostic& error = in.error("unused-section",
                                 "optimizer.base_batch_size",
                                 "optimizer.base_batch_size has no effect without lr_scaling");
    error.related.push_back(in.with("optimizer.lr_scaling"));
    error.fix = "add `lr_scaling: linear` or `sqrt`, or remove it";
  }
}

void bias_correction_is_known(const RuleInput& in) {
  const OptimizerConfig& optimizer = in.config.optimizer;
  const BiasCorrection value = optimizer.bias_correction;
  const bool adam = optimizer.type == OptimizerType::adam || optimizer.type == OptimizerType::adamw;
  if (!adam || value == BiasCorrection::on || value == BiasCorrection::off) {
    return;
  }
  Diagnostic& error =
      in.error("bad-enum",
               "optimizer.bias_correction",
               fmt::format("{} knows no bias_correction '{}'", word(optimizer.type), word(value)));
  error.related.push_back(in.with("optimizer.type"));
  error.why = "only lamb tells the kinds apart: its layer rate would hide the difference";
  error.fix = "bias_correction: true or false";
}

constexpr std::array<Rule, 2> kOptimizerRules = {scaled_rate_has_a_base, bias_correction_is_known};

}  // namespace

std::span<const Rule> optimizer_rules() {
  return kOptimizerRules;
}

}  // namespace colossal::detail
