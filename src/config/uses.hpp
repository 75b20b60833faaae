// How is a text with `${...}` taken apart?
#pragma once

#include "config/tree.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace colossal::detail {

/// What opens a use.
inline constexpr std::string_view kUseOpen = "${";

/// A piece of a text: plain text, or what stands between `${` and `}`.
struct Piece {
  bool use = false;
  std::string text;
};

/// The pieces of `text`, `$${` read as plain `${`; why there are none in `problem`.
[[nodiscard]] std::vector<Piece> split_uses(std::string_view text, std::string& problem);

/// Letters, digits and _, no digit first.
[[nodiscard]] bool is_variable_name(std::string_view text);

/// Reports interp-syntax if `text` holds `${`, for places where it is not allowed, and returns
/// whether it did. `what`: "a key", "`extends`".
bool refuse_interpolation(const std::string& text,
                          const Origin& origin,
                          std::string_view what,
                          Report& report);

/// Whether the values of an environment variable must never be written out: KEY, TOKEN, SECRET or
/// PASSWORD stands somewhere in its name, in either case (config-and-cli 1.3).
[[nodiscard]] bool is_secret(std::string_view variable);

}  // namespace colossal::detail
