// Does the reader get the prompts in order, and each as early as possible?
#include "infer/printer.hpp"

#include "unit/infer/infer_helpers.hpp"

#include <array>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unistd.h>

namespace colossal::test {
namespace {

/// A stream that keeps what is written.
class Memory {
 public:
  Memory() : file_(::open_memstream(&text_, &size_)) { REQUIRE(file_ != nullptr); }
  ~Memory() {
    std::fclose(file_);
    std::free(text_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] std::FILE* file() const { return file_; }
  [[nodiscard]] std::string text() const {
    std::fflush(file_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* file_;
};

}  // namespace

TEST_CASE("the first prompt is printed as it grows, the next when it is done", "[printer]") {
  const Memory memory;
  Printer printer(memory.file(), bytes_of, false);
  printer.open(0, "one", {'e'});
  CHECK(memory.text() == "one");
  printer.open(1, "two", {'o'});
  printer.take({1, 'X', std::nullopt});
  printer.take({0, 'a', std::nullopt});
  CHECK(memory.text() == "onea");
  printer.take({1, 'Y', Finish::length});
  printer.take({0, 0xC3, std::nullopt});
  CHECK(memory.text() == "onea");
  printer.take({0, 0xA9, Finish::length});
  CHECK(memory.text() == "onea\xC3\xA9\ntwoXY\n");
  printer.open(2, "three", {'e'});
  CHECK(memory.text().ends_with("\nthree"));
}

TEST_CASE("the end of a document is not text", "[printer]") {
  const Memory memory;
  Printer printer(memory.file(), bytes_of, false);
  printer.open(0, "p", {'p'});
  printer.take({0, 0xE2, std::nullopt});
  printer.take({0, 0, Finish::end});
  CHECK(memory.text() == "p\xE2\n");  // a character that was never finished is shown as it is
}

TEST_CASE("JSON tells everything about each prompt in order", "[printer]") {
  const Memory memory;
  Printer printer(memory.file(), bytes_of, true);
  printer.open(0, "one\n", {'e'});
  printer.open(1, "two", {'o'});
  printer.take({1, 0xFF, std::nullopt});
  printer.take({1, 'b', Finish::length});
  CHECK(memory.text().empty());
  printer.take({0, 'a', std::nullopt});
  printer.take({0, 0, Finish::end});
  std::istringstream lines(memory.text());
  std::string line;
  REQUIRE(std::getline(lines, line));
  const auto first = nlohmann::json::parse(line);
  CHECK(first["prompt"] == "one\n");
  CHECK(first["text"] == "a");
  CHECK(first["ids"] == std::vector<int>{'a'});
  CHECK(first["tokens"] == 1);
  CHECK(first["finish"] == "end");
  REQUIRE(std::getline(lines, line));
  const auto second = nlohmann::json::parse(line);
  CHECK(second["text"] ==
        "\xEF\xBF\xBD"
        "b");
  CHECK(second["ids"] == std::vector<int>{0xFF, 'b'});
  CHECK(second["finish"] == "length");
  CHECK_FALSE(std::getline(lines, line));
}

TEST_CASE("a reader who has gone ends the output without an error", "[printer]") {
  // Commands that run long ignore SIGPIPE; with it, this test would end here.
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  std::array<int, 2> ends = {};
  REQUIRE(::pipe(ends.data()) == 0);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::fdopen(ends[1], "w"), &std::fclose);
  REQUIRE(pipe != nullptr);
  Printer printer(pipe.get(), bytes_of, false);
  printer.open(0, "p", {'p'});
  CHECK_FALSE(printer.reader_gone());
  ::close(ends[0]);
  printer.take({0, 'a', std::nullopt});
  CHECK(printer.reader_gone());
  printer.take({0, 'b', Finish::length});
  std::signal(SIGPIPE, before);
}

TEST_CASE("a full disk is an error at the first text", "[printer]") {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> full(std::fopen("/dev/full", "w"),
                                                             &std::fclose);
  REQUIRE(full != nullptr);
  Printer printer(full.get(), bytes_of, false);
  require_error(ErrorKind::environment, "output-write", [&] { printer.open(0, "p", {'p'}); });
}

}  // namespace colossal::test
