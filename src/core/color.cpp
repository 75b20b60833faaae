// How are words coloured? ANSI codes that every terminal of the last decades knows.
#include "core/color.hpp"

#include "core/log.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <unistd.h>
#include <utility>

namespace colossal {
namespace {

std::atomic<ColorMode> color_mode{ColorMode::automatic};

/// By https://no-color.org an empty variable does not count.
bool is_set(const char* variable) {
  const char* value = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nobody sets them
  return value != nullptr && *value != '\0';
}

bool is_dumb_terminal() {
  const char* terminal = std::getenv("TERM");  // NOLINT(concurrency-mt-unsafe): the same
  return terminal == nullptr || std::string_view(terminal) == "dumb";
}

/// Bytes of a launcher's "[rank 3] " or "[ranks 0-3] " before a line.
std::size_t launcher_prefix(std::string_view line) {
  const std::size_t end = line.starts_with("[rank") ? line.find("] ") : std::string_view::npos;
  return end == std::string_view::npos ? 0 : end + 2;
}

/// Bytes before the severity of a line: the launcher's, and those of the place of an error,
/// "a.yaml:3:7: ".
std::size_t prefix_length(std::string_view line) {
  constexpr std::string_view kWord = "error: ";
  const std::size_t begin = launcher_prefix(line);
  const std::size_t message = log::error_message_at(line.substr(begin));
  return message == std::string_view::npos ? begin : begin + message - kWord.size();
}

}  // namespace

void set_color_mode(ColorMode mode) noexcept {
  color_mode = mode;
}

bool use_color(int stream) {
  const ColorMode mode = color_mode;
  return mode == ColorMode::always || (mode == ColorMode::automatic && !is_set("NO_COLOR") &&
                                       !is_dumb_terminal() && ::isatty(stream) == 1);
}

std::string painted(std::string_view text, Paint paint) {
  constexpr std::array<std::string_view, 3> kCodes = {"\x1b[1;31m", "\x1b[1;33m", "\x1b[1;36m"};
  return std::string(kCodes[static_cast<std::size_t>(paint)]) + std::string(text) + "\x1b[0m";
}

std::string paint_severity(std::string_view line) {
  constexpr std::array<std::pair<std::string_view, Paint>, 3> kWords = {
      {{"error:", Paint::error}, {"warning:", Paint::warning}, {"note:", Paint::note}}};
  const std::size_t begin = prefix_length(line);
  for (const auto& [word, paint] : kWords) {
    if (line.substr(begin).starts_with(word)) {
      return std::string(line.substr(0, begin)) + painted(word, paint) +
             std::string(line.substr(begin + word.size()));
    }
  }
  return std::string(line);
}

}  // namespace colossal
