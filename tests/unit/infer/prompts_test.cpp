// Are prompts taken line by line, as they arrive?
#include "infer/prompts.hpp"

#include "unit/infer/infer_helpers.hpp"

#include <string_view>
#include <unistd.h>

namespace colossal::test {
namespace {

/// A pipe whose writing end can be closed early.
class Pipe {
 public:
  Pipe() { REQUIRE(::pipe(ends_) == 0); }
  ~Pipe() {
    close_writer();
    ::close(ends_[0]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  [[nodiscard]] int reader() const { return ends_[0]; }
  void write(std::string_view text) const {
    REQUIRE(::write(ends_[1], text.data(), text.size()) == std::ssize(text));
  }
  void close_writer() {
    if (ends_[1] >= 0) {
      ::close(ends_[1]);
    }
    ends_[1] = -1;
  }

 private:
  int ends_[2] = {-1, -1};
};

}  // namespace

TEST_CASE("one prompt is taken whole, newlines and all", "[prompts]") {
  Prompts prompts(std::string("a\nb"));
  CHECK(prompts.next(true) == "a\nb");
  CHECK(prompts.next(true) == std::nullopt);
  CHECK(prompts.next(false) == std::nullopt);
  Prompts empty(std::string{});
  CHECK(empty.next(true) == "");
}

TEST_CASE("lines come as they are written", "[prompts]") {
  Pipe pipe;
  Prompts prompts(pipe.reader());
  CHECK(prompts.next(false) == std::nullopt);
  pipe.write("one\ntw");
  CHECK(prompts.next(false) == "one");
  CHECK(prompts.next(false) == std::nullopt);  // half a line is no prompt yet
  pipe.write("o\n\nlast");
  CHECK(prompts.next(true) == "two");
  CHECK(prompts.next(false) == std::nullopt);
  pipe.close_writer();
  CHECK(prompts.next(true) == "last");  // the last line needs no newline
  CHECK(prompts.next(true) == std::nullopt);
}

TEST_CASE("empty lines are no prompts and \\r\\n ends a line", "[prompts]") {
  Pipe pipe;
  Prompts prompts(pipe.reader());
  pipe.write("\n\r\none\r\n\n\n two\n\r");
  CHECK(prompts.next(true) == "one");
  CHECK(prompts.next(false) == " two");
  CHECK(prompts.next(false) == std::nullopt);
  pipe.close_writer();
  CHECK(prompts.next(true) == std::nullopt);
}

TEST_CASE("more than one buffer of lines", "[prompts]") {
  Pipe pipe;
  const std::string line(1000, 'x');
  std::string all;
  for (int i = 0; i < 60; ++i) {
    all += line + std::to_string(i) + "\n";
  }
  pipe.write(all);
  pipe.close_writer();
  Prompts prompts(pipe.reader());
  for (int i = 0; i < 60; ++i) {
    REQUIRE(prompts.next(true) == line + std::to_string(i));
  }
  CHECK(prompts.next(true) == std::nullopt);
}

TEST_CASE("nothing to read is no prompt", "[prompts]") {
  Pipe pipe;
  pipe.close_writer();
  Prompts prompts(pipe.reader());
  CHECK(prompts.next(true) == std::nullopt);
}

TEST_CASE("a descriptor that cannot be read is an error", "[prompts]") {
  int closed = 0;
  {
    const Pipe pipe;
    closed = pipe.reader();
  }
  Prompts prompts(closed);
  require_error(ErrorKind::data, "prompts-unreadable", [&] { (void)prompts.next(true); });
}

}  // namespace colossal::test
