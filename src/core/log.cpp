// How are log lines written? One locked sink per process.
#include "core/log.hpp"

#include "core/color.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <unistd.h>

namespace colossal::log {
namespace {

struct Sink {
  std::mutex mutex;
  Options options;
  std::atomic<Level> level{Level::info};  ///< of options; enabled() reads it without the lock
  std::ofstream file;
  std::map<std::string, std::uint64_t, std::less<>> seen;  ///< warnings and errors, by id
};

/// One of two process-wide objects, with the recorder of trace.cpp: a log that had to be passed to
/// every function would not be used.
Sink& sink() {
  static Sink instance;
  return instance;
}

std::string_view prefix(Level level) {
  switch (level) {
    case Level::trace:
      return "trace: ";
    case Level::debug:
      return "debug: ";
    case Level::warn:
      return "warning: ";
    case Level::error:
      return "error: ";
    case Level::info:
      break;
  }
  return "";
}

void to_file(Sink& s, std::string_view text) {
  if (s.options.folder.empty()) {
    return;
  }
  if (!s.file.is_open()) {
    std::error_code ignored;
    std::filesystem::create_directories(s.options.folder, ignored);
    s.file.open(file_of(s.options.folder, s.options.rank), std::ios::app);
  }
  s.file.clear();  // a full disk is not the end of the log: space may have come back
  s.file << text << '\n' << std::flush;
}

void to_stderr(std::string_view line) {
  const std::string text = use_color(STDERR_FILENO) ? paint_severity(line) : std::string(line);
  std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
}

/// What to append to this repetition of a message: its count, once that says something; nothing at
/// all is written if there is no value.
std::optional<std::string> repetition(Sink& s, Level level, std::string_view id) {
  constexpr std::uint64_t kAlways = 5;
  if (id.empty() || level < Level::warn) {
    return "";
  }
  const std::uint64_t count = ++s.seen.try_emplace(std::string(id), 0).first->second;
  if (count < kAlways) {
    return "";
  }
  if (count == kAlways) {
    return " (more of these are only counted)";
  }
  return std::has_single_bit(count) ? std::optional(fmt::format(" (seen {} times)", count))
                                    : std::nullopt;
}

}  // namespace

std::filesystem::path file_of(const std::filesystem::path& folder, int rank) {
  return folder / (rank == 0 ? std::string("train.log") : fmt::format("rank-{:04}.log", rank));
}

std::string with_id(std::string_view message, std::string_view id) {
  const std::size_t end = std::min(message.find('\n'), message.size());
  return fmt::format("{} [{}]{}", message.substr(0, end), id, message.substr(end));
}

void configure(const Options& options) {
  Sink& s = sink();
  const std::lock_guard lock(s.mutex);
  s.options = options;
  s.level = options.level;
  s.seen.clear();
  if (s.file.is_open()) {
    s.file.close();
  }
}

bool enabled(Level level) noexcept {
  return level >= sink().level.load(std::memory_order_relaxed);
}

void write(Level level, std::string_view text, std::string_view id) {
  Sink& s = sink();
  const std::lock_guard lock(s.mutex);
  if (level < s.options.level) {
    return;
  }
  const std::optional<std::string> count = repetition(s, level, id);
  if (!count) {
    return;
  }
  const std::string line = fmt::format("{}{}{}", prefix(level), text, *count);
  if (s.options.rank == 0) {
    to_stderr(line);
  } else if (level >= Level::warn) {
    to_stderr(fmt::format("[rank {}] {}", s.options.rank, line));
  }
  to_file(s, line);
}

void record(Level level, std::string_view text) {
  Sink& s = sink();
  const std::lock_guard lock(s.mutex);
  if (level >= s.options.level) {
    to_file(s, fmt::format("{}{}", prefix(level), text));
  }
}

void failure(const Error& error) {
  write(Level::error, with_id(error.what(), error.id()));
}

void console(std::string_view text) {
  Sink& s = sink();
  const std::lock_guard lock(s.mutex);
  if (s.options.rank == 0) {
    if (s.options.level <= Level::info) {  // -q keeps stderr quiet, never the file
      to_stderr(text);
    }
    to_file(s, text);
  }
}

void flush() {
  Sink& s = sink();
  const std::lock_guard lock(s.mutex);
  if (s.file.is_open()) {
    s.file.flush();
  }
  std::fflush(stderr);
}

}  // namespace colossal::log
