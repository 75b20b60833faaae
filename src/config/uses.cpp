// How are `${...}` found in a text, and which variables are secret?
#include "config/uses.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace colossal::detail {
namespace {

constexpr std::string_view kEscapedOpen = "$${";

/// Appends what stands between two uses, if anything does.
void flush_plain(std::string& plain, std::vector<Piece>& pieces) {
  if (!plain.empty()) {
    pieces.push_back({false, std::exchange(plain, {})});
  }
}

/// The body of the "${...}" at the start of `text`; "" and a problem if it has no proper end.
std::string_view use_body(std::string_view text, std::string& problem) {
  const std::size_t close = text.find('}');
  if (close == std::string_view::npos) {
    problem = "'${' is never closed";
    return {};
  }
  const std::string_view body = text.substr(kUseOpen.size(), close - kUseOpen.size());
  if (body.find(kUseOpen) != std::string_view::npos) {
    problem = "'${' cannot stand inside another one";
  }
  return body;
}

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
  while (!text.empty()) {
    std::size_t length = 1;
    if (text.starts_with(kEscapedOpen)) {
      plain += kUseOpen;
      length = kEscapedOpen.size();
    } else if (text.starts_with(kUseOpen)) {
      const std::string_view body = use_body(text, problem);
      flush_plain(plain, pieces);
      pieces.push_back({true, std::string(body)});
      length = kUseOpen.size() + body.size() + 1;
    } else {
      plain += text[0];
    }
    if (!problem.empty()) {
      return {};
    }
    text.remove_prefix(length);
  }
  flush_plain(plain, pieces);
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
