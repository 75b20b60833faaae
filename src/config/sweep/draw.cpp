// What may a distribution be, and what does it give?
#include "config/sweep/draw.hpp"

#include "config/scalar.hpp"
#include "config/sweep/values.hpp"
#include "core/hash.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace colossal::detail {
namespace {

std::optional<double> number_in(const Node& node) {
  const Parsed<double> real = parse_real(node.text);
  const Parsed<std::int64_t> whole = parse_int(node.text, /*suffixes=*/true);
  if (node.kind != Node::Kind::scalar || node.quoted) {
    return std::nullopt;
  }
  if (std::holds_alternative<std::int64_t>(whole)) {
    return static_cast<double>(std::get<std::int64_t>(whole));
  }
  return std::holds_alternative<double>(real) ? std::optional(std::get<double>(real))
                                              : std::nullopt;
}

/// Why a mapping is no distribution; empty if it is one.
std::string distribution_problem(const Node& entry) {
  if (entry.kind != Node::Kind::map || entry.children.size() != 1) {
    return fmt::format("has {}, not one distribution", kind_text(entry));
  }
  const Node& only = entry.children.front();
  const bool choice = only.key == "choice";
  if (!choice && only.key != "uniform" && only.key != "log_uniform") {
    return fmt::format("has a distribution `{}` that does not exist", only.key);
  }
  if (only.kind != Node::Kind::list || only.children.empty()) {
    return fmt::format("has {}, not a list, behind {}", kind_text(only), only.key);
  }
  if (choice) {
    return "";
  }
  const bool pair = only.children.size() == 2;
  const auto low = pair ? number_in(only.children[0]) : std::nullopt;
  const auto high = pair ? number_in(only.children[1]) : std::nullopt;
  if (!low || !high || *low >= *high) {
    return fmt::format("needs {}: [low, high] with low < high", only.key);
  }
  const bool whole = *low == std::floor(*low) && *high == std::floor(*high);
  if (takes_integers(entry.key) && !whole) {
    return "takes whole numbers, so the bounds must be whole";
  }
  return only.key == "log_uniform" && *low <= 0 ? "needs bounds above 0 for log_uniform" : "";
}

/// In [0, 1), of 53 bits: adding samples or keys changes no other draw.
double uniform(std::int64_t seed, std::size_t index, std::string_view key) {
  const std::uint64_t of_trial =
      splitmix64(splitmix64(static_cast<std::uint64_t>(seed)) ^ static_cast<std::uint64_t>(index));
  return static_cast<double>(splitmix64(of_trial ^ fnv1a64(key)) >> 11U) * 0x1p-53;
}

/// A number between low and high, both included for whole numbers.
double between_bounds(double low, double high, double u, bool whole, bool log) {
  const double end = whole ? high + 1 : high;
  const double value =
      log ? std::exp(std::log(low) + u * (std::log(end) - std::log(low))) : low + u * (end - low);
  const double rounded =
      whole ? std::floor(value) : std::get<double>(parse_real(fmt::format("{:.6g}", value)));
  return std::clamp(rounded, low, high);
}

}  // namespace

void check_distribution(const Node& entry, Report& report) {
  const std::string problem = distribution_problem(entry);
  if (!problem.empty()) {
    Diagnostic& error = report.error(
        "sweep-distribution", entry.key, entry.origin, fmt::format("{} {}", entry.key, problem));
    error.value = flow_text(entry);
    error.fix = "one of {uniform: [low, high]}, {log_uniform: [low, high]}, {choice: [value, ...]}";
  }
}

Node draw(const Node& entry, std::int64_t seed, std::size_t index) {
  const Node& only = entry.children.front();
  const double u = uniform(seed, index, entry.key);
  if (only.key == "choice") {
    const auto count = static_cast<double>(only.children.size());
    return only.children[static_cast<std::size_t>(u * count)];
  }
  const bool whole = takes_integers(entry.key);
  const double value = between_bounds(*number_in(only.children[0]),
                                      *number_in(only.children[1]),
                                      u,
                                      whole,
                                      only.key == "log_uniform");
  Node drawn;
  drawn.kind = Node::Kind::scalar;
  drawn.text = whole ? fmt::format("{:.0f}", value) : real_text(value);
  drawn.origin = only.origin;
  return drawn;
}

}  // namespace colossal::detail
