// Where do log lines go? Rank 0: stderr and logs/train.log; other ranks: logs/rank-XXXX.log, made
// on the first line.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace colossal {
class Error;
}

namespace colossal::log {

/// Severity, rising; the words of `logging.level`.
enum class Level : std::uint8_t { trace, debug, info, warn, error };

/// Where lines go and which are dropped.
struct Options {
  Level level = Level::info;
  int rank = 0;
  /// Folder for log files; empty: no files.
  std::filesystem::path folder;
  /// Whether the file of a rank other than 0 has more than warnings and errors.
  bool keeps_info = true;
};

/// What the console shows: lines for people, or one JSON object a line.
enum class Console : std::uint8_t { text, json };

/// Sets it for stderr of the process, text until then; files always hold text. An object has
/// "kind": "log", "level", "rank" and "text", the line as people would see it. Thread-safe.
void set_console(Console form) noexcept;
[[nodiscard]] Console console_form() noexcept;

/// A line as people would see it: the text of an object of the JSON console, any other line itself.
[[nodiscard]] std::string plain_line(std::string_view line);

/// Sets the process-wide sink. Until the first call: rank 0, level info, stderr only. Thread-safe,
/// as all of this file.
void configure(const Options& options);

/// Would a line of this level be written?
[[nodiscard]] bool enabled(Level level) noexcept;

/// Writes one line. Warnings and errors of any rank also go to stderr (prefixed "[rank N]" for N >
/// 0). Those that share an `id` (not empty) are written five times, then at each power of two with
/// their count.
void write(Level level, std::string_view text, std::string_view id = {});

/// As write(), but never to stderr: for what another process tells there.
void record(Level level, std::string_view text);

/// The message of an error as people see it: its id in brackets ends the first line.
[[nodiscard]] std::string with_id(std::string_view message, std::string_view id);

/// An error as people see it: "error: MESSAGE [id]", behind "PLACE: " if its place is known.
[[nodiscard]] std::string error_text(const Error& error);

/// Where the message begins in a line like the first one of error_text(); npos in any other line.
[[nodiscard]] std::size_t error_message_at(std::string_view line);

/// Writes an error that ends the process, with its place and id.
void failure(const Error& error);

/// The file of a rank in a folder of log files.
[[nodiscard]] std::filesystem::path file_of(const std::filesystem::path& folder, int rank);

/// Writes a line to stderr and train.log on rank 0 without level prefix: the console lines of
/// config-and-cli section 10.
void console(std::string_view text);
/// The same, but where the console shows objects it is this one.
void console(std::string_view text, const std::string& object);

/// Flushes the files; called before a process leaves by std::_Exit.
void flush();

/// Formats and writes one line; nothing is formatted if the level is off.
template <class... Args>
void debug(fmt::format_string<Args...> text, Args&&... args) {
  if (enabled(Level::debug)) {
    write(Level::debug, fmt::format(text, std::forward<Args>(args)...));
  }
}

/// As debug().
template <class... Args>
void info(fmt::format_string<Args...> text, Args&&... args) {
  if (enabled(Level::info)) {
    write(Level::info, fmt::format(text, std::forward<Args>(args)...));
  }
}

/// As debug(); never off, and repeated ones are counted: the format text is the id of write().
template <class... Args>
void warn(fmt::format_string<Args...> text, Args&&... args) {
  const fmt::string_view id = text;
  write(Level::warn, fmt::format(text, std::forward<Args>(args)...), {id.data(), id.size()});
}

/// As warn().
template <class... Args>
void error(fmt::format_string<Args...> text, Args&&... args) {
  const fmt::string_view id = text;
  write(Level::error, fmt::format(text, std::forward<Args>(args)...), {id.data(), id.size()});
}

}  // namespace colossal::log
