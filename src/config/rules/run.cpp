// Can the run be stored under its name?
#include "config/rules/rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace colossal::detail {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

/// Holds for the file stem too, when that is the name.
void name_is_a_folder(const RuleInput& in) {
  constexpr std::size_t kLongest = 80;
  const std::string& name = in.config.run.name;
  const bool legal = std::all_of(name.begin(), name.end(), is_name_char);
  if (legal && !name.empty() && name.size() <= kLongest && name != "." && name != "..") {
    return;
  }
  Diagnostic& error = in.error("bad-name", "run.name", fmt::format("'{}' cannot name a run", name));
  error.why = "the name becomes a folder; its default is the stem of the configuration file";
  error.fix = "run: {name: ...} with 1 to 80 of A-Z a-z 0-9 . _ -";
}

constexpr std::array<Rule, 1> kRules = {name_is_a_folder};

}  // namespace

std::span<const Rule> run_rules() {
  return kRules;
}

}  // namespace colossal::detail
