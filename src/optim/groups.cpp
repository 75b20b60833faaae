// Which settings does each parameter get? Globs over canonical names, resolved once.
#include "core/error.hpp"
#include "optim/optimizer.hpp"

#include <algorithm>
#include <fnmatch.h>

namespace colossal {
namespace {

bool matches(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::ranges::any_of(patterns,
                             [&](const std::string& pattern) { return matches(pattern, name); });
}

void check_used(bool used,
                const std::string& key,
                const std::string& pattern,
                std::span<const std::string> names) {
  check(used,
        ErrorKind::config,
        "pattern-unused",
        "{} '{}' matches no parameter that an earlier pattern left; the first of {} names is '{}'",
        key,
        pattern,
        names.size(),
        names.empty() ? "" : names.front());
}

}  // namespace

std::vector<ParamGroup> param_groups(const OptimizerConfig& config,
                                     std::span<const std::string> names) {
  std::vector<ParamGroup> resolved;
  std::vector<bool> used(config.groups.size(), false);
  for (const std::string& name : names) {
    ParamGroup group = {.lr_scale = 1, .weight_decay = config.weight_decay};
    const auto found = std::ranges::find_if(config.groups, [&](const OptimizerGroup& candidate) {
      return matches(candidate.match, name);
    });
    if (found != config.groups.end()) {
      used[static_cast<std::size_t>(found - config.groups.begin())] = true;
      group.lr_scale = found->lr_scale;
      group.weight_decay = found->weight_decay.value_or(config.weight_decay);
    }
    if (matches_any(config.no_decay, name)) {
      group.weight_decay = 0;
    }
    resolved.push_back(group);
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    check_used(used[i], "optimizer.groups: match", config.groups[i].match, names);
  }
  if (config.no_decay_given) {
    for (const std::string& pattern : config.no_decay) {
      const bool hit = std::ranges::any_of(
          names, [&](const std::string& name) { return matches(pattern, name); });
      check_used(hit, "optimizer.no_decay:", pattern, names);
    }
  }
  return resolved;
}

}  // namespace colossal
