// Which texts are numbers, durations, bytes and booleans? The strict grammar of config-and-cli 1.1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace colossal::detail {

/// Why a scalar was refused.
struct Problem {
  std::string id;
  std::string message;  ///< without the key
  std::string fix;
};

/// The value, or why there is none.
template <class T>
using Parsed = std::variant<T, Problem>;

/// `12`, `-3`, `1_000`, `1e3`, `3.0e9`; with `suffixes` also k M B T. Problems: bad-int.
[[nodiscard]] Parsed<std::int64_t> parse_int(std::string_view text, bool suffixes);

/// `1e-5`, `.5`, `2`. Problems: bad-real.
[[nodiscard]] Parsed<double> parse_real(std::string_view text);

/// `true` or `false` in any case. Problems: bad-bool.
[[nodiscard]] Parsed<bool> parse_bool(std::string_view text);

/// `30s`, `10m`, `2h`, `1d`, `0` in seconds. Problems: bad-duration.
[[nodiscard]] Parsed<double> parse_duration(std::string_view text);

/// `512MiB`, `25MB`, `1.5GiB`, or whole bytes. Problems: bad-bytes.
[[nodiscard]] Parsed<std::int64_t> parse_bytes(std::string_view text);

/// Shortest text that parse_real reads back to the same value.
[[nodiscard]] std::string real_text(double value);

/// Whether an unquoted YAML scalar of this text would be a number to any YAML reader or to us.
[[nodiscard]] bool looks_numeric(std::string_view text);

}  // namespace colossal::detail
