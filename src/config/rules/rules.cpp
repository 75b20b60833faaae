// How do rules complain, and in which order do they run?
#include "config/rules/rules.hpp"

#include "config/flatten.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <vector>

namespace colossal::detail {

Diagnostic& RuleInput::error(std::string_view id,
                             std::string_view path,
                             std::string message) const {
  Diagnostic& diagnostic = report.error(id, path, origins.place_for(path), std::move(message));
  diagnostic.value = value(path);
  return diagnostic;
}

Diagnostic& RuleInput::warning(std::string_view id,
                               std::string_view path,
                               std::string message) const {
  Diagnostic& diagnostic = error(id, path, std::move(message));
  diagnostic.severity = Diagnostic::Severity::warning;
  return diagnostic;
}

Diagnostic& RuleInput::note(std::string_view id, std::string_view path, std::string message) const {
  Diagnostic& diagnostic = error(id, path, std::move(message));
  diagnostic.severity = Diagnostic::Severity::note;
  return diagnostic;
}

Related RuleInput::with(std::string_view path) const {
  return {std::string(path), value(path), origins.of(path)};
}

std::string RuleInput::value(std::string_view path) const {
  for (FlatField& field : flatten(config)) {
    if (field.path == path) {
      return std::move(field.text);
    }
  }
  return "";
}

std::optional<std::int64_t> RuleInput::steps() const {
  if (host.steps) {
    return host.steps;
  }
  const TrainConfig& train = config.train;
  const bool known = train.steps || (!train.epochs && train.global_batch_size != 0);
  return known ? std::optional(total_steps(config, 0)) : std::nullopt;
}

void check_rules(const RuleInput& input) {
  for (const auto& rules : {run_rules(),
                            mesh_rules(),
                            memory_rules(),
                            model_rules(input.config.model.type),
                            data_rules(),
                            optimizer_rules(),
                            scheduler_rules(),
                            schedule_rules(),
                            usage_rules(),
                            checkpoint_rules(),
                            precision_rules()}) {
    for (const Rule rule : rules) {
      rule(input);
    }
  }
}

void check_mesh(const RuleInput& input) {
  for (const Rule rule : mesh_rules()) {
    rule(input);
  }
}

void report_unused(const RuleInput& in,
                   std::string_view path,
                   std::string_view with,
                   std::string_view reason) {
  Diagnostic& error =
      in.error("unused-section", path, fmt::format("{} has no effect: {}", path, reason));
  error.related.push_back(in.with(with));
  error.fix = "remove it";
}

std::string_view budget_key(const TrainConfig& train) {
  if (train.steps) {
    return "train.steps";
  }
  if (train.epochs) {
    return "train.epochs";
  }
  return train.tokens ? "train.tokens" : "train.samples";
}

std::string nearest_divisors(std::int64_t number, std::int64_t wanted) {
  constexpr std::size_t kMost = 8;
  std::set<std::int64_t> found;
  for (std::int64_t d = 1; d <= number / d; ++d) {
    if (number % d == 0) {
      found.insert({d, number / d});
    }
  }
  std::vector<std::int64_t> divisors(found.begin(), found.end());
  std::sort(divisors.begin(), divisors.end(), [&](std::int64_t a, std::int64_t b) {
    return std::abs(a - wanted) < std::abs(b - wanted);
  });
  divisors.resize(std::min(divisors.size(), kMost));
  std::sort(divisors.begin(), divisors.end());
  return fmt::format("{}", fmt::join(divisors, " | "));
}

}  // namespace colossal::detail
