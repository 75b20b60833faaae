// Where do log lines go, and how often is one repeated?
#include "core/log.hpp"

#include "core/color.hpp"
#include "core/error.hpp"
#include "core/system.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace colossal {
namespace {

namespace fs = std::filesystem;
using test::TempDir;

/// Log files in a folder of their own; afterwards the log is as it was.
class LogFolder {
 public:
  explicit LogFolder(int rank, log::Level level = log::Level::info) : rank_(rank) {
    log::configure({level, rank, folder_.path() / "logs"});
  }
  ~LogFolder() { log::configure({}); }
  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;

  [[nodiscard]] fs::path file() const { return log::file_of(folder_.path() / "logs", rank_); }
  [[nodiscard]] std::string text() const { return read_text(file()); }

 private:
  TempDir folder_;
  int rank_;
};

TEST_CASE("colours are for stderr, never for files", "[log]") {
  const LogFolder folder(0);
  set_color_mode(ColorMode::always);
  log::warn("a disk is slow");
  set_color_mode(ColorMode::automatic);
  CHECK(folder.text() == "warning: a disk is slow\n");
}

TEST_CASE("rank 0 writes train.log, others a file each, made on the first line", "[log]") {
  CHECK(log::file_of("logs", 0) == fs::path("logs/train.log"));
  CHECK(log::file_of("logs", 7) == fs::path("logs/rank-0007.log"));
  const LogFolder folder(7);
  log::debug("below the level");
  CHECK_FALSE(fs::exists(folder.file()));
  log::info("[data] {} samples", 3);
  log::console("of rank 0 only");
  CHECK(folder.text() == "[data] 3 samples\n");
}

TEST_CASE("a rank that is not asked for more keeps warnings and errors", "[log]") {
  for (const int rank : {0, 2}) {
    const LogFolder folder(rank);
    log::configure({.rank = rank, .folder = folder.file().parent_path(), .keeps_info = false});
    log::info("all is well");
    log::record(log::Level::info, "recorded");
    log::warn("a disk is slow");
    log::record(log::Level::error, "a peer is lost");
    const std::string grave = "warning: a disk is slow\nerror: a peer is lost\n";
    CHECK(folder.text() == (rank == 0 ? "all is well\nrecorded\n" + grave : grave));
  }
}

/// What is written to stderr meanwhile.
std::string captured(const std::function<void()>& action) {
  const TempDir folder;
  const fs::path file = folder.path() / "err";
  std::fflush(stderr);
  const int saved = ::dup(STDERR_FILENO);
  const int to = ::open(file.c_str(), O_CREAT | O_WRONLY, 0600);
  ::dup2(to, STDERR_FILENO);
  action();
  std::fflush(stderr);
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
  ::close(to);
  return read_text(file);
}

TEST_CASE("a JSON console shows an object a line, and files the text", "[log]") {
  const LogFolder first(0);
  const std::string err = captured([] {
    log::set_console(log::Console::json);
    log::info("two\nlines, \"quoted\"");
    log::warn("caf\xe9");  // not UTF-8
    log::console("step 3  loss 0.3333", R"({"kind":"train","loss":0.33333333333333331})");
    log::console("ckpt  step 3");
    log::set_console(log::Console::text);
    log::info("plain again");
  });
  CHECK(err == R"({"kind":"log","level":"info","rank":0,"text":"two\nlines, \"quoted\""})"
               "\n"
               R"({"kind":"log","level":"warn","rank":0,"text":"warning: caf)"
               "\xef\xbf\xbd"
               R"("})"
               "\n"
               R"({"kind":"train","loss":0.33333333333333331})"
               "\n"
               R"({"kind":"log","level":"info","rank":0,"text":"ckpt  step 3"})"
               "\n"
               "plain again\n");
  CHECK(
      first.text() ==
      "two\nlines, \"quoted\"\nwarning: caf\xe9\nstep 3  loss 0.3333\nckpt  step 3\nplain again\n");
}

TEST_CASE("other ranks are named in their objects, whose text is found again", "[log]") {
  const LogFolder folder(5);
  const std::string err = captured([] {
    log::set_console(log::Console::json);
    log::info("for the file only");
    log::error("no room left [full]");
    log::console("of rank 0 only");
    log::set_console(log::Console::text);
  });
  CHECK(err == R"({"kind":"log","level":"error","rank":5,"text":"error: no room left [full]"})"
               "\n");
  CHECK(log::plain_line(err.substr(0, err.size() - 1)) == "error: no room left [full]");
  CHECK(log::plain_line("error: as it is") == "error: as it is");
  CHECK(log::plain_line(R"({"kind":"train","loss":1})") == R"({"kind":"train","loss":1})");
  CHECK(log::plain_line(R"({"kind":"log",cut)") == R"({"kind":"log",cut)");
}

TEST_CASE("a level hides what is below it, and its prefix says which it is", "[log]") {
  const LogFolder folder(3, log::Level::error);
  CHECK_FALSE(log::enabled(log::Level::warn));
  CHECK(log::enabled(log::Level::error));
  log::warn("hidden");
  log::error("shown {}", 1);
  log::record(log::Level::warn, "hidden");
  log::record(log::Level::error, "for the file");
  CHECK(folder.text() == "error: shown 1\nerror: for the file\n");
}

TEST_CASE("repeated warnings are written five times, then at each power of two", "[log]") {
  const LogFolder folder(1);
  for (int i = 1; i <= 40; ++i) {
    log::warn("metric {} is lost", i);
    log::info("step {}", i);
  }
  const std::string text = folder.text();
  std::string warnings;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin) + 1;
    const std::string line = text.substr(begin, end - begin);
    warnings += line.starts_with("warning: ") ? line : "";
    begin = end;
  }
  CHECK(warnings ==
        "warning: metric 1 is lost\n"
        "warning: metric 2 is lost\n"
        "warning: metric 3 is lost\n"
        "warning: metric 4 is lost\n"
        "warning: metric 5 is lost (more of these are only counted)\n"
        "warning: metric 8 is lost (seen 8 times)\n"
        "warning: metric 16 is lost (seen 16 times)\n"
        "warning: metric 32 is lost (seen 32 times)\n");
  CHECK(std::count(text.begin(), text.end(), '\n') == 8 + 40);
}

TEST_CASE("messages are counted apart, and anew after configure", "[log]") {
  const LogFolder folder(1);
  for (int i = 0; i < 6; ++i) {
    log::warn("one");
  }
  log::warn("another");
  log::write(log::Level::warn, "without an id");
  std::string text = folder.text();
  CHECK(std::count(text.begin(), text.end(), '\n') == 5 + 2);
  const LogFolder fresh(1);
  log::warn("one");
  CHECK(fresh.text() == "warning: one\n");
}

TEST_CASE("an id ends the first line of a message", "[log]") {
  CHECK(log::with_id("too large", "bad-size") == "too large [bad-size]");
  CHECK(log::with_id("too large\n  fix   less\n", "bad-size") ==
        "too large [bad-size]\n  fix   less\n");
  const LogFolder folder(1);
  try {
    fail(ErrorKind::data, "bad-size", "{} is too large\n  fix   less", 3);
  } catch (const Error& error) {
    log::failure(error);
  }
  CHECK(folder.text() == "error: 3 is too large [bad-size]\n  fix   less\n");
}

TEST_CASE("an error about a key says where it was written, and what stands there", "[log]") {
  const auto thrown = [](std::string_view outer) {
    try {
      blaming(outer, [] {
        blaming("run.output_dir",
                [] { fail(ErrorKind::data, "bad-size", "{} is too large\n  fix   less", 3); });
      });
    } catch (const Error& error) {
      return error;
    }
    throw std::logic_error("no error");
  };
  const Error error = thrown("run");
  CHECK(error.key() == "run.output_dir");  // the nearest knows best
  CHECK(error.place().empty());
  CHECK(log::error_text(error) == "error: 3 is too large [bad-size]\n  fix   less");
  const Error placed = error.placed("a.yaml:3:7", "     3 | size: 3\n  key   size = 3\n");
  CHECK(placed.key() == error.key());
  CHECK(placed.exit_code() == error.exit_code());
  const std::string text = log::error_text(placed);
  CHECK(text ==
        "a.yaml:3:7: error: 3 is too large [bad-size]\n     3 | size: 3\n  key   size = 3\n  fix   "
        "less");
  CHECK(log::error_text(error.placed("--set#1", "")) ==
        "--set#1: error: 3 is too large [bad-size]\n  fix   less");
  CHECK(text.substr(log::error_message_at(text)).starts_with("3 is too large"));
  CHECK(log::error_message_at("error: x") == 7);
  CHECK(log::error_message_at("--set#1: error: x") == 16);
  for (const char* other :
       {"warning: error: x is none", "note: x", "errors: 3", "", "a: b: error: x"}) {
    INFO(other);
    CHECK(log::error_message_at(other) == std::string_view::npos);
  }
  CHECK(blaming("run", [] { return 3; }) == 3);
}

TEST_CASE("a log goes on when a full disk has space again", "[log]") {
  const LogFolder folder(1);
  log::info("before");
  const auto size_of_file = static_cast<rlim_t>(fs::file_size(folder.file()));
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit full{size_of_file, limit.rlim_max};
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);  // writes fail as on a full disk
  setrlimit(RLIMIT_FSIZE, &full);
  log::info("while it is full");
  const std::string kept = folder.text();
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  CHECK(kept == "before\n");
  log::info("after");
  CHECK(folder.text().ends_with("\nafter\n"));
}

TEST_CASE("lines for a log file that cannot be written were lost without a word", "[log]") {
  const TempDir folder;
  const fs::path seen = folder.path() / "stderr";
  const fs::path logs = folder.path() / "logs";
  std::ofstream(logs) << "a file in the place of the folder";
  std::fflush(stderr);
  const int before = ::dup(STDERR_FILENO);
  const int file = ::open(seen.c_str(), O_CREAT | O_WRONLY, 0600);
  ::dup2(file, STDERR_FILENO);
  log::configure({log::Level::info, 1, logs});
  log::info("first");
  log::info("second");
  fs::remove(logs);
  log::info("third");
  fs::remove_all(logs);
  log::configure({});
  std::fflush(stderr);
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  ::close(file);
  const std::string told = read_text(seen);
  CHECK(told == "[rank 1] warning: [log] " + log::file_of(logs, 1).string() +
                    ": lines are lost: Not a directory\n");
}

TEST_CASE("threads write whole lines", "[log]") {
  const LogFolder folder(1);
  constexpr int kThreads = 4;
  constexpr int kLines = 50;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([thread] {
      for (int line = 0; line < kLines; ++line) {
        log::info("{}", std::string(200, static_cast<char>('a' + thread)));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::istringstream lines(folder.text());
  int whole = 0;
  for (std::string line; std::getline(lines, line); ++whole) {
    REQUIRE(line == std::string(200, line.at(0)));
  }
  CHECK(whole == kThreads * kLines);
}

}  // namespace
}  // namespace colossal
