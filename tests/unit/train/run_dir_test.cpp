// Is a run directory owned by one run, and are its files always whole?
#include "train/run_dir.hpp"

#include "core/error.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

#include <fstream>
#include <iterator>
#include <sys/stat.h>

using colossal::Error;
using colossal::read_text;
using colossal::RunDir;
using colossal::test::TempDir;
namespace fs = std::filesystem;

namespace {

void write_text(const fs::path& file, const std::string& text) {
  std::ofstream(file) << text;
}

template <class Action>
std::string id_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::string(error.id());
  }
  return "";
}

}  // namespace

TEST_CASE("attempts count the starts that wrote a status", "[run_dir]") {
  const TempDir folder;
  CHECK(RunDir::open(folder.path() / "run", 0)->attempt() == 1);
  RunDir::open(folder.path() / "run", 0)->write("status.json", R"({"attempt": 4})");
  CHECK(RunDir::open(folder.path() / "run", 0)->attempt() == 5);
  write_text(folder.path() / "run" / "status.json", "{\"attem");
  CHECK(RunDir::open(folder.path() / "run", 0)->attempt() == 1);
}

TEST_CASE("files are replaced as a whole", "[run_dir]") {
  const TempDir folder;
  const auto run = RunDir::open(folder.path(), 0);
  run->write("plan.json", "one");
  run->write("plan.json", "two");
  CHECK(read_text(folder.path() / "plan.json") == "two");
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    CHECK(entry.path().extension() != ".tmp");
    ++files;
  }
  CHECK(files == 2);  // plan.json and run.lock
}

TEST_CASE("what cannot be logged does not throw, what cannot be stored does", "[run_dir]") {
  const TempDir folder;
  const auto run = RunDir::open(folder.path(), 0);
  fs::create_directories(folder.path() / "status.json" / "full");
  run->update("status.json", "{}");
  CHECK(id_of([&] { run->write("status.json", "{}"); }) == "output-not-writable");
}

TEST_CASE("a folder that cannot hold two checkpoints is refused", "[run_dir]") {
  const TempDir folder;
  constexpr std::int64_t kExbibyte = std::int64_t{1} << 60;
  CHECK(id_of([&] { colossal::check_writable(folder.path(), kExbibyte); }) == "disk-low");
  CHECK(id_of([&] { colossal::check_writable(folder.path(), 0); }).empty());
  CHECK(fs::is_empty(folder.path()));
  const fs::path made = folder.path() / "runs" / "new";
  CHECK(id_of([&] { colossal::check_writable(made, kExbibyte); }) == "disk-low");
  CHECK_FALSE(fs::exists(made));
  CHECK(id_of([&] { colossal::check_writable(made, 0); }).empty());
  CHECK(fs::is_empty(made));
}

TEST_CASE("a file where the folder should be is refused", "[run_dir]") {
  const TempDir folder;
  write_text(folder.path() / "file", "");
  CHECK(id_of([&] { RunDir::open(folder.path() / "file", 0); }) == "output-not-writable");
  CHECK(id_of([&] { RunDir::open(folder.path() / "file" / "run", 0); }) == "output-not-writable");
}

TEST_CASE("a link to a file that does not exist yet is probed without making it", "[run_dir]") {
  const TempDir folder;
  fs::create_directory(folder.path() / "run");
  fs::create_symlink("../elsewhere.jsonl", folder.path() / "run" / "metrics.jsonl");
  CHECK(id_of([&] { colossal::check_writable(folder.path() / "run", 0); }).empty());
  CHECK_FALSE(fs::exists(folder.path() / "elsewhere.jsonl"));
  CHECK(fs::is_symlink(folder.path() / "run" / "metrics.jsonl"));
}

TEST_CASE("folders inside that cannot be written were noticed after training", "[run_dir]") {
  for (const char* name : {"checkpoints", "logs", "export"}) {
    INFO(name);
    const TempDir folder;
    const auto refused = [&] {
      return id_of([&] { colossal::check_writable(folder.path(), 0); }) == "output-not-writable" &&
             id_of([&] { RunDir::open(folder.path(), 0); }) == "output-not-writable";
    };
    const fs::path inner = folder.path() / name;
    fs::create_symlink(folder.path() / "nowhere" / "else", inner);
    CHECK(refused());
    CHECK(id_of([&] { colossal::check_writable(folder.path(), 0, true); }).empty());
    fs::remove(inner);
    write_text(inner, "a file in its place");
    CHECK(refused());
    fs::remove(inner);
    fs::create_directory(inner);
    CHECK_FALSE(refused());
    CHECK(fs::is_empty(inner));
    // Another folder that takes its place is as good.
    fs::remove(inner);
    fs::create_directory(folder.path() / "other");
    fs::create_symlink("other", inner);
    CHECK_FALSE(refused());
  }
}

TEST_CASE("files inside that would block or cannot grow are refused", "[run_dir]") {
  const TempDir folder;
  fs::create_directories(folder.path() / "logs" / "attempt-2");
  const auto id = [&] { return id_of([&] { RunDir::open(folder.path(), 0); }); };
  for (const char* name : {"metrics.jsonl", "status.json", "abort.json", "logs/rank-0001.log"}) {
    INFO(name);
    const fs::path file = folder.path() / name;
    REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
    CHECK(id() == "output-not-writable");
    fs::remove(file);
    fs::create_directory(file);
    CHECK(id() == "output-not-writable");
    fs::remove(file);
    CHECK(id().empty());
  }
  fs::create_symlink(folder.path() / "nowhere" / "else", folder.path() / "metrics.jsonl");
  CHECK(id() == "output-not-writable");
  fs::remove(folder.path() / "metrics.jsonl");
  // The logs of the attempt that begins, not those of the last one.
  write_text(folder.path() / "status.json", R"({"attempt": 1})");
  fs::create_symlink(folder.path() / "nowhere" / "else", folder.path() / "logs" / "train.log");
  CHECK(id().empty());
  fs::create_symlink("train.log", folder.path() / "logs" / "attempt-2" / "train.log");
  CHECK(id() == "output-not-writable");
}

TEST_CASE("what an earlier run has left is not touched by the probe", "[run_dir]") {
  const TempDir folder;
  write_text(folder.path() / "metrics.jsonl", "{}\n");
  fs::create_directories(folder.path() / "checkpoints" / "step-00000001");
  colossal::check_writable(folder.path(), 0);
  CHECK(read_text(folder.path() / "metrics.jsonl") == "{}\n");
  CHECK_FALSE(fs::exists(folder.path() / "status.json"));
  CHECK(std::distance(fs::directory_iterator(folder.path() / "checkpoints"), {}) == 1);
}

TEST_CASE("moving aside numbers the old runs and spares what is no run", "[run_dir]") {
  const TempDir folder;
  const fs::path run = folder.path() / "run";
  CHECK(RunDir::move_aside(run).empty());
  RunDir::open(run, 0)->write("config.resolved.yaml", "first");
  CHECK(RunDir::move_aside(run) == fs::path(run.string() + ".old-1"));
  CHECK_FALSE(fs::exists(run));
  RunDir::open(run, 0)->write("config.resolved.yaml", "second");
  CHECK(RunDir::move_aside(run) == fs::path(run.string() + ".old-2"));
  CHECK(read_text(run.string() + ".old-1/config.resolved.yaml") == "first");
  fs::create_directories(run);
  write_text(run / "thesis.txt", "four years");
  CHECK(id_of([&] { static_cast<void>(RunDir::move_aside(run)); }) == "overwrite-not-a-run");
}

TEST_CASE("a run directory is taken over only when nobody owns it", "[run_dir]") {
  const TempDir folder;
  CHECK(RunDir::take_over(folder.path() / "none") == nullptr);
  {
    const auto run = RunDir::open(folder.path(), 0);
    CHECK(RunDir::take_over(folder.path()) == nullptr);
  }
  const auto heir = RunDir::take_over(folder.path());
  REQUIRE(heir != nullptr);
  heir->update("status.json", "{}");
  CHECK(read_text(folder.path() / "status.json") == "{}");
}

TEST_CASE("a new attempt drops the last one's abort.json", "[run_dir]") {
  const TempDir folder;
  write_text(folder.path() / "abort.json", "{}");
  const auto run = RunDir::open(folder.path(), 0);
  CHECK_FALSE(fs::exists(folder.path() / "abort.json"));
}

TEST_CASE("log files of later attempts have a folder of their own", "[run_dir]") {
  CHECK(colossal::log_folder("run", 0) == fs::path("run/logs"));
  CHECK(colossal::log_folder("run", 1) == fs::path("run/logs"));
  CHECK(colossal::log_folder("run", 3) == fs::path("run/logs/attempt-3"));
}
