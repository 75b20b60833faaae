// How wide is each column?
#include "train/table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace colossal {
namespace {

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  }
  return quoted + "\"";
}

}  // namespace

std::string to_table(std::span<const TableRow> rows, const TableStyle& style) {
  std::vector<std::size_t> widths = {style.first_width};
  for (const TableRow& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const TableRow& row : rows) {
    text += style.begin;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool last = i + 1 == row.size();
      text += i == 0 ? std::string_view() : style.between;
      text += i >= style.left ? fmt::format("{:>{}}", row[i], widths[i])
              : last          ? row[i]
                              : fmt::format("{:<{}}", row[i], widths[i]);
    }
    text += "\n";
  }
  return text;
}

std::string to_csv(std::span<const TableRow> rows) {
  std::string text;
  for (const TableRow& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += (i == 0 ? "" : ",") + csv_cell(row[i]);
    }
    text += "\n";
  }
  return text;
}

}  // namespace colossal
