// How are scalars parsed without surprises? By hand: yaml-cpp reads 010 as 8 and no as false.
#include "config/scalar.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace colossal::detail {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// digits * 10^exponent of a decimal text; exact, unlike a double.
struct Decimal {
  bool negative = false;
  std::string digits;  ///< no leading zeros
  long exponent = 0;
};

/// Takes digits (and single underscores between digits) from `text` at `i`.
std::string take_digits(std::string_view text, std::size_t& i, bool underscores) {
  std::string digits;
  while (i < text.size()) {
    const bool separator = underscores && text[i] == '_' && !digits.empty() &&
                           i + 1 < text.size() && is_digit(text[i + 1]);
    if (!separator && !is_digit(text[i])) {
      break;
    }
    digits += separator ? "" : std::string(1, text[i]);
    ++i;
  }
  return digits;
}

/// Power of ten written as `e-3`; false if `e` is not followed by 1 to 4 digits.
bool take_exponent(std::string_view text, std::size_t& i, long& exponent) {
  if (i >= text.size() || (text[i] != 'e' && text[i] != 'E')) {
    return true;
  }
  ++i;
  const bool minus = i < text.size() && text[i] == '-';
  i += i < text.size() && (text[i] == '-' || text[i] == '+') ? 1U : 0U;
  const std::string digits = take_digits(text, i, false);
  constexpr std::size_t kMaxDigits = 4;
  if (digits.empty() || digits.size() > kMaxDigits) {
    return false;
  }
  exponent += (minus ? -1 : 1) * std::stol(digits);
  return true;
}

/// Power of ten of a count suffix at `i`; 0 without one.
long take_suffix(std::string_view text, std::size_t& i) {
  constexpr std::string_view kSuffixes = "kMBT";
  const std::size_t which = i < text.size() ? kSuffixes.find(text[i]) : std::string_view::npos;
  if (which == std::string_view::npos) {
    return 0;
  }
  ++i;
  return 3 * (static_cast<long>(which) + 1);
}

std::optional<Decimal> parse_decimal(std::string_view text, bool suffixes) {
  Decimal decimal;
  std::size_t i = 0;
  decimal.negative = !text.empty() && text[0] == '-';
  i += decimal.negative ? 1U : 0U;
  decimal.digits = take_digits(text, i, true);
  if (i < text.size() && text[i] == '.') {
    ++i;
    const std::string fraction = take_digits(text, i, false);
    decimal.digits += fraction;
    decimal.exponent -= static_cast<long>(fraction.size());
  }
  if (decimal.digits.empty() || !take_exponent(text, i, decimal.exponent)) {
    return std::nullopt;
  }
  decimal.exponent += suffixes ? take_suffix(text, i) : 0;
  if (i != text.size()) {
    return std::nullopt;
  }
  decimal.digits.erase(0, decimal.digits.find_first_not_of('0'));
  return decimal;
}

/// Moves trailing zeros into the exponent; an exponent that stays negative is a real fraction.
void trim(Decimal& decimal) {
  while (decimal.exponent < 0 && !decimal.digits.empty() && decimal.digits.back() == '0') {
    decimal.digits.pop_back();
    ++decimal.exponent;
  }
  decimal.exponent = decimal.digits.empty() ? 0 : decimal.exponent;
}

/// The integer a whole decimal stands for; nothing if it does not fit.
std::optional<std::int64_t> to_integer(const Decimal& decimal) {
  constexpr std::size_t kMaxDigits = 19;
  if (decimal.digits.empty()) {
    return 0;
  }
  if (decimal.digits.size() > kMaxDigits ||
      decimal.exponent > static_cast<long>(kMaxDigits - decimal.digits.size())) {
    return std::nullopt;
  }
  const std::string text = (decimal.negative ? "-" : "") + decimal.digits +
                           std::string(static_cast<std::size_t>(decimal.exponent), '0');
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

/// `010` and `0x10` mean different numbers to different readers.
std::optional<Problem> ambiguous_base(std::string_view text) {
  const std::string_view sign = text.substr(0, text.starts_with('-') ? 1 : 0);
  const std::string_view digits = text.substr(sign.size());
  if (digits.size() < 2 || digits[0] != '0') {
    return std::nullopt;
  }
  const bool hex = digits[1] == 'x' || digits[1] == 'X';
  const bool octal = std::all_of(digits.begin(), digits.end(), is_digit);
  if (!hex && !octal) {
    return std::nullopt;
  }
  const std::string_view body = digits.substr(hex ? 2 : 1);
  std::int64_t value = 0;
  const auto [end, error] =
      std::from_chars(body.data(), body.data() + body.size(), value, hex ? 16 : 8);
  const bool whole = error == std::errc() && end == body.data() + body.size();
  const std::size_t first = digits.find_first_not_of('0');
  const std::string decimal(octal && first != std::string_view::npos ? digits.substr(first) : "0");
  Problem problem{"bad-int", fmt::format("'{}' is ambiguous", text), "write a decimal number"};
  if (hex && whole) {
    problem.fix = fmt::format("write {}{}", sign, value);
  } else if (octal) {
    problem.fix = whole && decimal != "0"
                      ? fmt::format("write {1}{0} or {1}{2}", decimal, sign, value)
                      : fmt::format("write {}{}", decimal == "0" ? "" : sign, decimal);
  }
  return problem;
}

}  // namespace

Parsed<std::int64_t> parse_int(std::string_view text, bool suffixes) {
  if (auto problem = ambiguous_base(text)) {
    return *problem;
  }
  const char* examples = suffixes ? "write a whole number such as 1000, 1e3 or 1k"
                                  : "write a whole number such as 1000 or 1e3";
  auto decimal = parse_decimal(text, suffixes);
  if (decimal) {
    trim(*decimal);
  }
  if (!decimal || decimal->exponent < 0) {
    return Problem{"bad-int", fmt::format("'{}' is not a whole number", text), examples};
  }
  const auto value = to_integer(*decimal);
  if (!value) {
    return Problem{"bad-int", fmt::format("'{}' does not fit into 64 bits", text), examples};
  }
  return *value;
}

Parsed<double> parse_real(std::string_view text) {
  const Problem bad{"bad-real",
                    fmt::format("'{}' is not a number", text),
                    text.find(',') != std::string_view::npos ? "use a decimal point"
                                                             : "write for example 1e-5 or 0.1"};
  const bool digits_only = std::all_of(text.begin(), text.end(), [](char c) {
    return is_digit(c) || c == '.' || c == 'e' || c == 'E' || c == '-' || c == '+';
  });
  double value = 0;
  const std::string_view body = text.starts_with('+') ? text.substr(1) : text;
  const bool two_signs = body.size() < text.size() && body.starts_with('-');
  const auto [end, error] = std::from_chars(body.data(), body.data() + body.size(), value);
  if (!digits_only || two_signs || end != body.data() + body.size()) {
    return bad;
  }
  if (error == std::errc::result_out_of_range) {
    return Problem{"bad-real",
                   fmt::format("'{}' is beyond the numbers of 64 bits", text),
                   "choose a number whose size is from 2.3e-308 to 1.7e308, or 0"};
  }
  return error == std::errc() ? Parsed<double>(value) : bad;
}

Parsed<bool> parse_bool(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  if (lower == "true" || lower == "false") {
    return lower == "true";
  }
  return Problem{"bad-bool", fmt::format("'{}' is not a boolean", text), "write true or false"};
}

Parsed<double> parse_duration(std::string_view text) {
  constexpr std::string_view kUnits = "smhd";
  constexpr double kSeconds[] = {1, 60, 3600, 86400};
  if (text == "0") {
    return 0.0;
  }
  const std::size_t unit = text.empty() ? std::string_view::npos : kUnits.find(text.back());
  const bool has_unit = unit != std::string_view::npos;
  const Parsed<double> number = parse_real(has_unit ? text.substr(0, text.size() - 1) : text);
  const auto* value = std::get_if<double>(&number);
  if (value == nullptr || *value < 0) {
    return Problem{"bad-duration",
                   fmt::format("'{}' is not a duration", text),
                   "write for example 30s, 10m, 2h or 1d"};
  }
  if (!has_unit) {
    return Problem{"bad-duration",
                   fmt::format("'{}' has no unit", text),
                   fmt::format("add a unit: {}s, {}m, {}h or {}d", text, text, text, text)};
  }
  return *value * kSeconds[unit];
}

Parsed<std::int64_t> parse_bytes(std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr std::array<Unit, 9> kUnits = {{{"KiB", 0x1p10},
                                           {"MiB", 0x1p20},
                                           {"GiB", 0x1p30},
                                           {"TiB", 0x1p40},
                                           {"KB", 1e3},
                                           {"MB", 1e6},
                                           {"GB", 1e9},
                                           {"TB", 1e12},
                                           {"B", 1}}};
  const Problem bad{"bad-bytes",
                    fmt::format("'{}' is not an amount of memory", text),
                    "write for example 512MiB, 25MB, 1.5GiB, or whole bytes"};
  const auto unit = std::find_if(
      kUnits.begin(), kUnits.end(), [&](const Unit& u) { return text.ends_with(u.name); });
  if (unit == kUnits.end()) {
    const Parsed<std::int64_t> plain = parse_int(text, false);
    return std::holds_alternative<Problem>(plain) ? Parsed<std::int64_t>(bad) : plain;
  }
  const Parsed<double> number = parse_real(text.substr(0, text.size() - unit->name.size()));
  const auto* value = std::get_if<double>(&number);
  if (value == nullptr || *value < 0 || *value * unit->bytes >= 0x1p62) {
    return bad;
  }
  const double bytes = *value * unit->bytes;
  if (std::floor(bytes) != bytes) {
    return Problem{bad.id, fmt::format("'{}' is no whole number of bytes", text), bad.fix};
  }
  return static_cast<std::int64_t>(bytes);
}

std::string real_text(double value) {
  return fmt::format("{}", value);
}

bool looks_numeric(std::string_view text) {
  if (text.starts_with('+') || text.starts_with('-')) {
    text.remove_prefix(1);
  }
  return !text.empty() && (is_digit(text[0]) || (text[0] == '.' && text.size() > 1));
}

}  // namespace colossal::detail
