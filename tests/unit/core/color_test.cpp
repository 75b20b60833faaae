// Where are messages coloured, and which words?
#include "core/color.hpp"

#include "core/system.hpp"
#include "support/catch.hpp"

#include <cstdlib>
#include <fcntl.h>
#include <optional>
#include <string>

namespace colossal {
namespace {

/// An environment variable with another value, or without one, until the end of the scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) {
      before_ = before;
    }
    set(value);
  }
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) const {
    if (value == nullptr) {
      ::unsetenv(name_);
    } else {
      ::setenv(name_, value, 1);
    }
  }

  const char* name_;
  std::optional<std::string> before_;
};

/// The mode that holds until the end of the scope.
class Mode {
 public:
  explicit Mode(ColorMode mode) { set_color_mode(mode); }
  ~Mode() { set_color_mode(ColorMode::automatic); }
  Mode(const Mode&) = delete;
  Mode& operator=(const Mode&) = delete;
};

TEST_CASE("colours come by themselves on terminals, unless NO_COLOR is set", "[color]") {
  const Descriptor terminal(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  REQUIRE(terminal.get() >= 0);
  const Descriptor file(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  const Variable kind("TERM", "xterm");
  const Variable allowed("NO_COLOR", nullptr);
  CHECK(use_color(terminal.get()));
  CHECK_FALSE(use_color(file.get()));
  {
    const Variable refused("NO_COLOR", "1");
    CHECK_FALSE(use_color(terminal.get()));
    const Mode mode(ColorMode::always);  // what is asked for beats the environment
    CHECK(use_color(terminal.get()));
    CHECK(use_color(file.get()));
  }
  {
    const Variable empty("NO_COLOR", "");
    CHECK(use_color(terminal.get()));
    const Variable dumb("TERM", "dumb");
    CHECK_FALSE(use_color(terminal.get()));
    const Variable none("TERM", nullptr);
    CHECK_FALSE(use_color(terminal.get()));
  }
  const Mode mode(ColorMode::never);
  CHECK_FALSE(use_color(terminal.get()));
}

TEST_CASE("the severity that begins a line is coloured, nothing else", "[color]") {
  CHECK(painted("x", Paint::note) == "\x1b[1;36mx\x1b[0m");
  CHECK(paint_severity("error: no [id]\n") == "\x1b[1;31merror:\x1b[0m no [id]\n");
  CHECK(paint_severity("warning: slow") == "\x1b[1;33mwarning:\x1b[0m slow");
  CHECK(paint_severity("[rank 3] error: no") == "[rank 3] \x1b[1;31merror:\x1b[0m no");
  CHECK(paint_severity("a.yaml:3:7: error: no") == "a.yaml:3:7: \x1b[1;31merror:\x1b[0m no");
  CHECK(paint_severity("[rank 3] --set#1: error: no") ==
        "[rank 3] --set#1: \x1b[1;31merror:\x1b[0m no");
  CHECK(paint_severity("[ranks 0-3,7] note: x") == "[ranks 0-3,7] \x1b[1;36mnote:\x1b[0m x");
  for (const char* plain :
       {"", "errors: 3", "an error: x", "  error: x", "[rank", "[data] error: x"}) {
    INFO(plain);
    CHECK(paint_severity(plain) == plain);
  }
}

}  // namespace
}  // namespace colossal
