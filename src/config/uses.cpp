// How are `${...}` found in a text, and which variables are secret?
#include "config/uses.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace colossal::detail {
namespace {

constexpr std::string_view kEscapedOpen = "$${";

}  // namespace

bool is_variable_name(std::string_view text) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !text.empty() && letter(text[0]) && std::all_of(text.begin(), text.end(), [&](char c) {
    return letter(c) || (c >= '0' && c <= '9');
  });
}

std::vector<Piece> split_uses(std::string_view text, std::string& problem) {
  std::vector<Piece> pieces;
  std::string plain;
  std::size_t i = 0;
  while (i < text.size()) {
    if (text.substr(i).starts_with(kEscapedOpen)) {
      plain += kUseOpen;
      i += kEscapedOpen.size();
    } else if (text.substr(i).starts_with(kUseOpen)) {
      const std::size_t close = text.find('}', i);
      const std::string_view body = text.substr(i + 2, close - i - 2);
      if (close == std::string_view::npos || body.find(kUseOpen) != std::string_view::npos) {
        problem = close == std::string_view::npos ? "'${' is never closed"
                                                  : "'${' cannot stand inside another one";
        return {};
      }
      if (!plain.empty()) {
        pieces.push_back({false, std::move(plain)});
        plain.clear();
      }
      pieces.push_back({true, std::string(body)});
      i = close + 1;
    } else {
      plain += text[i++];
    }
  }
  if (!plain.empty()) {
    pieces.push_back({false, std::move(plain)});
  }
  return pieces;
}

bool is_secret(std::string_view variable) {
  constexpr std::array<std::string_view, 4> kMarks = {"KEY", "TOKEN", "SECRET", "PASSWORD"};
  std::string upper(variable);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return std::any_of(kMarks.begin(), kMarks.end(), [&](std::string_view mark) {
    return upper.find(mark) != std::string::npos;
  });
}

bool refuse_interpolation(const std::string& text,
                          const Origin& origin,
                          std::string_view what,
                          Report& report) {
  if (text.find(kUseOpen) == std::string::npos) {
    return false;
  }
  report
      .error("interp-syntax", "", origin, fmt::format("{} cannot hold ${{...}}: '{}'", what, text))
      .fix = "write it out; ${...} works in values only";
  return true;
}

}  // namespace colossal::detail
