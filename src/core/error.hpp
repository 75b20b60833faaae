// How does anything fail? One exception type: a kind (= exit code), a stable id, a place and a
// stack of contexts.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace colossal {

/// Class of a failure. The value is the process exit code (config-and-cli section 4).
enum class ErrorKind : std::uint8_t {
  internal = 1,
  usage = 2,
  config = 3,
  data = 4,
  checkpoint = 5,
  memory = 6,
  numerics = 7,
  comm = 8,
  environment = 9,
};

/// What a command returns after it has reported the mistakes of a configuration.
inline constexpr int kConfigExit = static_cast<int>(ErrorKind::config);

/// The YAML-facing word of a kind: "config", "data", ...
[[nodiscard]] std::string_view name(ErrorKind kind) noexcept;

/// The only exception our code throws. what() = message, then one "while ..." line per active
/// ErrorContext, innermost first. Ids are stable, kebab-case ("heads-divisible"); tests and users
/// rely on them.
class Error : public std::runtime_error {
 public:
  /// `where`: the place that found the mistake, given by fail() and check().
  Error(ErrorKind kind,
        std::string_view id,
        const std::string& message,
        std::source_location where);

  /// What the constructor was given; the exit code is the kind's value.
  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
  [[nodiscard]] std::string_view id() const noexcept { return id_; }
  [[nodiscard]] const std::source_location& where() const noexcept { return where_; }
  [[nodiscard]] int exit_code() const noexcept { return static_cast<int>(kind_); }

  /// The configuration's key that is at fault, "run.output_dir"; empty if none is known.
  [[nodiscard]] const std::string& key() const noexcept { return key_; }
  /// Where that key was written, "a.yaml:3:7" or "--set#1"; empty if nobody has looked yet.
  [[nodiscard]] const std::string& place() const noexcept { return place_; }
  /// Names the key at fault, unless somebody nearer to the mistake has.
  void blame(std::string_view key);
  /// This error with its place, and with `lines` (each ends with a newline) below its first line.
  [[nodiscard]] Error placed(std::string place, std::string_view lines) const;

 private:
  ErrorKind kind_;
  std::string id_;
  std::source_location where_;
  std::string key_;
  std::string place_;
};

/// Runs `body`; the errors that leave it name `key`, unless they name one already.
template <class Body>
decltype(auto) blaming(std::string_view key, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (Error& error) {
    error.blame(key);
    throw;
  }
}

/// A checked format string that also captures the caller's place.
template <class... Args>
struct Message {
  fmt::format_string<Args...> text;
  std::source_location where;

  /// Implicit, so that callers write a plain literal; checked at compile time.
  template <class S>
  consteval Message(
      const S& s,  // NOLINT(google-explicit-constructor): a literal converts, as in fmt
      std::source_location w = std::source_location::current())
      : text(s), where(w) {}
};

/// Throws Error(kind, id, formatted message, caller's place).
template <class... Args>
[[noreturn]] void fail(ErrorKind kind,
                       std::string_view id,
                       Message<std::type_identity_t<Args>...> message,
                       Args&&... args) {
  throw Error(kind, id, fmt::format(message.text, std::forward<Args>(args)...), message.where);
}

/// Throws as fail() does unless `ok`; formats only on failure.
template <class... Args>
void check(bool ok,
           ErrorKind kind,
           std::string_view id,
           Message<std::type_identity_t<Args>...> message,
           Args&&... args) {
  if (!ok) {
    throw Error(kind, id, fmt::format(message.text, std::forward<Args>(args)...), message.where);
  }
}

/// While alive, errors made on this thread end with "while <what>". Nested contexts stack.
class ErrorContext {
 public:
  explicit ErrorContext(std::string what);
  ~ErrorContext();
  ErrorContext(const ErrorContext&) = delete;
  ErrorContext& operator=(const ErrorContext&) = delete;
  ErrorContext(ErrorContext&&) = delete;
  ErrorContext& operator=(ErrorContext&&) = delete;
};

}  // namespace colossal
