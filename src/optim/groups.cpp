// Which settings does each parameter get? Globs over canonical names, resolved once.
#include "core/hash.hpp"
#include "optim/optimizer.hpp"

#include <fmt/format.h>

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

/// The first group that matches; the end if none does.
auto group_of(const std::vector<OptimizerGroup>& groups, const std::string& name) {
  return std::ranges::find_if(
      groups, [&](const OptimizerGroup& group) { return matches(group.match, name); });
}

/// Adds the patterns of the key `path` that match no name.
void add_unmatched(std::vector<UnusedPattern>& unused,
                   const char* path,
                   const std::vector<std::string>& patterns,
                   std::span<const std::string> names) {
  for (const std::string& pattern : patterns) {
    const bool hit =
        std::ranges::any_of(names, [&](const std::string& name) { return matches(pattern, name); });
    if (!hit) {
      unused.push_back({path, pattern});
    }
  }
}

}  // namespace

std::vector<ParamGroup> param_groups(const OptimizerConfig& config,
                                     std::span<const std::string> names) {
  std::vector<ParamGroup> resolved;
  for (const std::string& name : names) {
    ParamGroup group = {.lr_scale = 1,
                        .weight_decay = config.weight_decay,
                        .adapt = !matches_any(config.no_adapt, name),
                        .key = fnv1a64(name)};
    const auto found = group_of(config.groups, name);
    if (found != config.groups.end()) {
      group.lr_scale = found->lr_scale;
      group.weight_decay = found->weight_decay.value_or(config.weight_decay);
    }
    if (matches_any(config.no_decay, name)) {
      group.weight_decay = 0;
    }
    resolved.push_back(group);
  }
  return resolved;
}

std::vector<UnusedPattern> unused_patterns(const OptimizerConfig& config,
                                           std::span<const std::string> names) {
  std::vector<bool> used(config.groups.size(), false);
  for (const std::string& name : names) {
    const auto found = group_of(config.groups, name);
    if (found != config.groups.end()) {
      used[static_cast<std::size_t>(found - config.groups.begin())] = true;
    }
  }
  std::vector<UnusedPattern> unused;
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) {
      unused.push_back({fmt::format("optimizer.groups[{}].match", i), config.groups[i].match});
    }
  }
  if (config.no_decay_given) {
    add_unmatched(unused, "optimizer.no_decay", config.no_decay, names);
  }
  // Derived from no_decay where the user wrote none, and then checked above.
  if (config.no_adapt != config.no_decay) {
    add_unmatched(unused, "optimizer.no_adapt", config.no_adapt, names);
  }
  return unused;
}

}  // namespace colossal
