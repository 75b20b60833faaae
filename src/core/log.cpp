// How are log lines written? One locked sink per process.
#include "core/log.hpp"

#include <cstdio>
#include <fstream>
#include <mutex>

namespace colossal::log {
namespace {

struct Sink {
  std::mutex mutex;
  Options options;
  std::ofstream file;
};

/// The one process-wide object of the project: a log that had to be passed to every function would
/// not be used.
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
    const std::string name = s.options.rank == 0 ? std::string("train.log")
                                                 : fmt::format("rank-{:04}.log", s.options.rank);
    s.file.open(s.options.folder / name, std::ios::app);
  }
  s.file << text << '\n' << std::flush;
}

void to_stderr(std::string_view text) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
}

}  // namespace

void configure(const Options& options) {
  Sink& s = sink();
  const std::lock_guard lock(s.mutex);
  s.options = options;
  if (s.file.is_open()) {
    s.file.close();
  }
}

bool enabled(Level level) noexcept {
  return level >= sink().options.level;
}

void write(Level level, std::string_view text) {
  Sink& s = sink();
  const std::lock_guard lock(s.mutex);
  if (level < s.options.level) {
    return;
  }
  const std::string line = fmt::format("{}{}", prefix(level), text);
  if (s.options.rank == 0) {
    to_stderr(line);
  } else if (level >= Level::warn) {
    to_stderr(fmt::format("[rank {}] {}", s.options.rank, line));
  }
  to_file(s, line);
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
