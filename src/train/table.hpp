// How do rows of texts look as a table?
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {

/// The cells of one line.
using TableRow = std::vector<std::string>;

/// How columns are set.
struct TableStyle {
  std::size_t left = 1;         ///< so many columns begin at the left, all others end at the right
  std::size_t first_width = 0;  ///< least width of the first one
  std::string_view begin = "";  ///< of every line
  std::string_view between = "  ";
};

/// Rows of equal length as aligned columns. Every line ends with a newline.
[[nodiscard]] std::string to_table(std::span<const TableRow> rows, const TableStyle& style = {});

/// The same as comma-separated values (RFC 4180, lines end with a newline alone).
[[nodiscard]] std::string to_csv(std::span<const TableRow> rows);

}  // namespace colossal
