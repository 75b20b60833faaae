// How does --help look? CLI11's layout, with the options that every command takes, as wide as the
// terminal.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace colossal {

/// The options of the program itself that its commands take as well: not --help and --version.
[[nodiscard]] std::vector<const CLI::Option*> common_options(const CLI::App& program);

/// `text` with line breaks in place of spaces, so that no line is longer than `width` where its
/// words allow it.
[[nodiscard]] std::string wrapped(const std::string& text, std::size_t width);

/// Columns to print in: COLUMNS, else of the terminal that stdout is; 0 if there is none.
[[nodiscard]] std::size_t help_columns();

/// Adds the options of every command to the help of each, and wraps descriptions.
class HelpFormatter : public CLI::Formatter {
 public:
  [[nodiscard]] std::string make_footer(const CLI::App* app) const override;
  [[nodiscard]] std::string make_option_desc(const CLI::Option* option) const override;
};

}  // namespace colossal
