// Which options does every command take, and where do long lines break?
#include "help_formatter.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>

namespace colossal {

std::vector<const CLI::Option*> common_options(const CLI::App& program) {
  return program.get_options([&](const CLI::Option* option) {
    return option != program.get_help_ptr() && option != program.get_version_ptr();
  });
}

std::string wrapped(const std::string& text, std::size_t width) {
  std::string lines = text;
  std::size_t begin = 0;
  while (begin + width < lines.size()) {
    const std::size_t newline = lines.find('\n', begin);
    if (newline <= begin + width) {
      begin = newline + 1;
      continue;
    }
    std::size_t space = lines.rfind(' ', begin + width);
    if (space == std::string::npos || space <= begin) {
      space = lines.find_first_of(" \n", begin);  // a word longer than the line
    }
    if (space == std::string::npos) {
      break;
    }
    lines[space] = '\n';
    begin = space + 1;
  }
  return lines;
}

std::size_t help_columns() {
  const char* const told = ::getenv("COLUMNS");  // NOLINT(concurrency-mt-unsafe): one thread
  const std::string_view text = told == nullptr ? "" : told;
  std::size_t columns = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), columns);
  if (error == std::errc{} && end == text.data() + text.size() && columns > 0) {
    return columns;
  }
  winsize window{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 ? window.ws_col : 0;
}

std::string HelpFormatter::make_footer(const CLI::App* app) const {
  const CLI::App* program = app;
  while (program->get_parent() != nullptr) {
    program = program->get_parent();
  }
  const std::string own = Formatter::make_footer(app);
  if (program == app) {
    return own;
  }
  const std::string group = make_group("Options of every command", false, common_options(*program));
  return group.substr(1) + own;  // the layout has an empty line of its own
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  constexpr std::size_t kNarrowest = 20;
  const std::size_t columns = help_columns();
  const std::string text = Formatter::make_option_desc(option);
  return columns == 0
             ? text
             : wrapped(text,
                       columns > column_width_ + kNarrowest ? columns - column_width_ : kNarrowest);
}

}  // namespace colossal
