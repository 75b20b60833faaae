// How are log lines written? One locked sink per process.
#include "core/log.hpp"

#include "core/color.hpp"
#include "core/error.hpp"
#include "core/json.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace colossal::log {
namespace {

struct Sink {
  std::mutex mutex;
  Options options;
  std::atomic<Level> level{Level::info};  ///< of options; enabled() reads it without the lock
  std::ofstream file;
  bool file_failed = false;  ///< since when lines are lost, which was told
  std::map<std::string, std::uint64_t, std::less<>> seen;  ///< warnings and errors, by id
};

/// One of two process-wide objects, with the recorder of trace.cpp: a log that had to be passed to
/// every function would not be used.
Sink& sink() {
  static Sink instance;
  return instance;
}

std::atomic<Console> form{Console::text};

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

/// What an object of the JSON console begins with.
constexpr std::string_view kLogObject = R"({"kind":"log",)";

std::string_view word(Level level) {
  constexpr std::array<std::string_view, 5> kWords = {"trace", "debug", "info", "warn", "error"};
  return kWords[static_cast<std::size_t>(level)];
}

void to_console(const Sink& s, Level level, std::string_view line) {
  if (console_form() == Console::json) {
    const nlohmann::ordered_json object = {
        {"kind", "log"}, {"level", word(level)}, {"rank", s.options.rank}, {"text", line}};
    to_stderr(object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (s.options.rank == 0) {
    to_stderr(line);
  } else {
    to_stderr(fmt::format("[rank {}] {}", s.options.rank, line));
  }
}

/// Tells once, on the console alone, that lines are lost.
void tell_loss(Sink& s, const std::filesystem::path& file, int error) {
  if (std::exchange(s.file_failed, true)) {
    return;
  }
  to_console(s,
             Level::warn,
             fmt::format("{}[log] {}: lines are lost: {}",
                         prefix(Level::warn),
                         file.string(),
                         std::generic_category().message(error)));
}

void to_file(Sink& s, std::string_view text) {
  if (s.options.folder.empty()) {
    return;
  }
  const std::filesystem::path file = file_of(s.options.folder, s.options.rank);
  errno = 0;
  if (!s.file.is_open()) {
    std::error_code shows_below;
    std::filesystem::create_directories(s.options.folder, shows_below);
    s.file.open(file, std::ios::app);
  }
  if (s.file.is_open()) {
    s.file.clear();  // a full disk is not the end of the log: space may have come back
    s.file << text << '\n' << std::flush;
  }
  if (s.file.is_open() && s.file.good()) {
    s.file_failed = false;
  } else {
    tell_loss(s, file, errno == 0 ? EIO : errno);
  }
}

void write_line(Sink& s, Level level, const std::string& line) {
  if (s.options.rank == 0 || level >= Level::warn) {
    to_console(s, level, line);
  }
  if (s.options.rank == 0 || level >= Level::warn || s.options.keeps_info) {
    to_file(s, line);
  }
}

}  // namespace

std::filesystem::path file_of(const std::filesystem::path& folder, int rank) {
  return folder / (rank == 0 ? std::string("train.log") : fmt::format("rank-{:04}.log", rank));
}

std::string with_id(std::string_view message, std::string_view id) {
  const std::size_t end = std::min(message.find('\n'), message.size());
  return fmt::format("{} [{}]{}", message.substr(0, end), id, message.substr(end));
}

void set_console(Console wanted) noexcept {
  form = wanted;
}

Console console_form() noexcept {
  return form;
}

std::string plain_line(std::string_view line) {
  if (!line.starts_with(kLogObject)) {
    return std::string(line);
  }
  const auto object = nlohmann::json::parse(std::string(line), nullptr, false);
  return object.is_object() ? object.value("text", std::string(line)) : std::string(line);
}

void configure(const Options& options) {
  Sink& s = sink();
  const std::lock_guard lock(s.mutex);
  s.options = options;
  s.level = options.level;
  s.seen.clear();
  s.file_failed = false;
  if (s.file.is_open()) {
    s.file.close();
  }
}

bool enabled(Level level) noexcept {
  return level >= sink().level.load(std::memory_order_relaxed);
}

std::string error_text(const Error& error) {
  return fmt::format("{}{}error: {}",
                     error.place(),
                     error.place().empty() ? "" : ": ",
                     with_id(error.what(), error.id()));
}

std::size_t error_message_at(std::string_view line) {
  constexpr std::string_view kMark = "error: ";
  const std::size_t colon = line.find(": ");
  const bool other = line.starts_with("warning: ") || line.starts_with("note: ");
  const bool placed = colon != std::string_view::npos && !line.starts_with(kMark) && !other;
  const std::size_t begin = placed ? colon + 2 : 0;
  return line.substr(begin).starts_with(kMark) ? begin + kMark.size() : std::string_view::npos;
}

void write(Level level, std::string_view text, std::string_view id) {
  Sink& s = sink();
  const std::lock_guard lock(s.mutex);
  if (level < s.options.level) {
    return;
  }
  if (const std::optional<std::string> count = repetition(s, level, id)) {
    write_line(s, level, fmt::format("{}{}{}", prefix(level), text, *count));
  }
}

void record(Level level, std::string_view text) {
  Sink& s = sink();
  const std::lock_guard lock(s.mutex);
  const bool kept = s.options.rank == 0 || level >= Level::warn || s.options.keeps_info;
  if (level >= s.options.level && kept) {
    to_file(s, fmt::format("{}{}", prefix(level), text));
  }
}

void failure(const Error& error) {
  Sink& s = sink();
  const std::lock_guard lock(s.mutex);
  write_line(s, Level::error, error_text(error));
}

void console(std::string_view text) {
  console(text, "");
}

void console(std::string_view text, const std::string& object) {
  Sink& s = sink();
  const std::lock_guard lock(s.mutex);
  if (s.options.rank != 0) {
    return;
  }
  if (s.options.level <= Level::info) {  // -q keeps stderr quiet, never the file
    if (console_form() == Console::json && !object.empty()) {
      to_stderr(object);
    } else {
      to_console(s, Level::info, text);
    }
  }
  to_file(s, text);
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
