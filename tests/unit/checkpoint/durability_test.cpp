// What is left after a full disk, a refused folder, or a kill in the middle of a save?
#include "checkpoint/detail/durable.hpp"
#include "unit/checkpoint/fixture.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern char** environ;

namespace colossal::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kChildRoot = "COLOSSAL_TEST_CHECKPOINT_ROOT";
constexpr const char* kChildLimit = "COLOSSAL_TEST_FILE_LIMIT";
constexpr const char* kChildName = "child process that saves";

/// While alive no file of this process can grow past `bytes`: writes fail with EFBIG instead of a
/// signal.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    old_handler_ = signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, old_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*old_handler_)(int) = SIG_DFL;
};

/// Many small tensors and some larger than the library's buffers.
std::vector<TensorRecord> mixed_model(std::int64_t first) {
  std::vector<TensorRecord> records = small_model(first);
  for (int i = 0; i < 20; ++i) {
    records.push_back(whole("model/bias." + std::to_string(i), counting({40}, at::kFloat, first)));
  }
  records.push_back(whole("model/large", counting({200, 200}, at::kFloat, first)));
  return records;
}

/// This test program again, running only the hidden child test.
pid_t start_child(const fs::path& root, const std::string& file_limit) {
  setenv(kChildRoot, root.c_str(), 1);
  setenv(kChildLimit, file_limit.c_str(), 1);
  std::array<char, 64> name{};
  std::strncpy(name.data(), kChildName, name.size() - 1);
  std::string program = "checkpoint";
  std::array<char*, 3> arguments = {program.data(), name.data(), nullptr};
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  REQUIRE(posix_spawn(&child, "/proc/self/exe", &quiet, nullptr, arguments.data(), environ) == 0);
  posix_spawn_file_actions_destroy(&quiet);
  return child;
}

int wait_for(pid_t child) {
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

bool has_temporary(const fs::path& root) {
  const std::vector<std::string> names = names_in(root);
  return std::any_of(
      names.begin(), names.end(), [](const auto& name) { return contains(name, ".tmp-"); });
}

}  // namespace

TEST_CASE("child process that saves", "[.child]") {
  const char* root = std::getenv(kChildRoot);
  REQUIRE(root != nullptr);
  signal(SIGXFSZ, SIG_DFL);
  if (const rlim_t limit = std::strtoull(std::getenv(kChildLimit), nullptr, 10); limit > 0) {
    const rlimit both{limit, limit};
    setrlimit(RLIMIT_FSIZE, &both);
  }
  for (std::int64_t step = 2; step < 10'000; ++step) {
    save_one(root, step, mixed_model(step));
  }
}

TEST_CASE("a write that fails anywhere leaves the old checkpoint and no temporary folder",
          "[durability]") {
  const TempDir dir;
  save_one(dir.path(), 1, mixed_model(1));
  std::int64_t failed = 0;
  for (const rlim_t limit :
       {0, 100, 3'000, 5'000, 7'000, 9'000, 20'000, 100'000, 165'000, 172'000}) {
    INFO("files may have " << limit << " bytes");
    const Failure failure = failure_of([&] {
      const FileSizeLimit guard(limit);
      save_one(dir.path(), 2, mixed_model(2));
    });
    if (failure.id.empty()) {
      require_loads(folder_of(dir.path(), 2), mixed_model(2));
      continue;
    }
    ++failed;
    CHECK(failure.id == "checkpoint-write");
    CHECK(failure.exit_code == 5);
    CHECK(contains(failure.text, "step-00000002.tmp-1"));
    INFO(failure.text);
    CHECK(contains(failure.text, "File too large"));
    CHECK(names_in(dir.path()) == std::vector<std::string>{"latest", "step-00000001"});
    CHECK(read_file(dir.path() / "latest") == "1\n");
  }
  CHECK(failed >= 8);
  require_loads(folder_of(dir.path(), 1), mixed_model(1));
  save_one(dir.path(), 3, mixed_model(3));
  require_loads(folder_of(dir.path(), 3), mixed_model(3));
}

TEST_CASE("a full volume is named, its space comes back, the next save works", "[durability]") {
  const TempDir dir;
  if (mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=512k") != 0) {
    WARN("skipped: mounting a tmpfs is not permitted here: " << std::strerror(errno));
    return;
  }
  const fs::path root = dir.path() / "checkpoints";
  const auto free_bytes = [&] { return fs::space(dir.path()).available; };
  save_one(root, 1, mixed_model(1));
  const auto before = free_bytes();
  for (int round = 0; round < 3; ++round) {
    std::vector<TensorRecord> large = mixed_model(2);
    large.push_back(whole("model/too-large", counting({150'000})));
    const Failure failure = failure_of([&] { save_one(root, 2, large); });
    INFO(failure.text);
    CHECK(failure.id == "checkpoint-write");
    CHECK(contains(failure.text, "no space left"));
    CHECK(contains(failure.text, "rank-0000.h5"));
    CHECK(free_bytes() == before);
  }
  require_loads(folder_of(root, 1), mixed_model(1));
  save_one(root, 3, mixed_model(3), {.keep_last = 1});
  require_loads(folder_of(root, 3), mixed_model(3));
  REQUIRE(umount2(dir.path().c_str(), MNT_DETACH) == 0);
}

TEST_CASE("the fault hook makes a save fail like a full volume", "[durability]") {
  const TempDir dir;
  save_one(dir.path(), 1, small_model());
  setenv("COLOSSAL_FAULT", "rank=0,kind=write-error:200", 1);
  const Failure failure = failure_of([&] { save_one(dir.path(), 2, small_model()); });
  unsetenv("COLOSSAL_FAULT");
#if COLOSSAL_FAULTS
  CHECK(failure.id == "checkpoint-write");
  CHECK(contains(failure.text, "no space left"));
  CHECK(names_in(dir.path()) == std::vector<std::string>{"latest", "step-00000001"});
#else
  CHECK(failure.id.empty());
#endif
}

TEST_CASE("full disk and used up quota are told apart", "[durability]") {
  const TempDir dir;
  const auto text_of = [&](int number) {
    const Failure failure =
        failure_of([&] { colossal::detail::fail_write(dir.path() / "x.h5", number, "other"); });
    CHECK(failure.id == "checkpoint-write");
    CHECK(contains(failure.text, "x.h5"));
    return failure.text;
  };
  CHECK(contains(text_of(ENOSPC), "no space left on its volume"));
  CHECK(contains(text_of(ENOSPC), "B free)"));
  CHECK(contains(text_of(EDQUOT), "quota"));
  CHECK(contains(text_of(EIO), "Input/output error"));
  CHECK(contains(text_of(0), "other"));
}

TEST_CASE("a folder that cannot be made is named", "[durability]") {
  const TempDir dir;
  write_file(dir.path() / "file", "in the way");
  const Failure failure =
      failure_of([&] { save_one(dir.path() / "file" / "checkpoints", 1, small_model()); });
  CHECK(failure.id == "checkpoint-write");
  CHECK(contains(failure.text, "checkpoints"));
  CHECK(contains(failure.text, "Not a directory"));
}

TEST_CASE("a process that dies at any byte of a save leaves the previous checkpoint",
          "[durability]") {
  const TempDir dir;
  save_one(dir.path(), 1, mixed_model(1));
  // The kernel ends the child at the first byte past the limit: in the rank file's head, data and
  // end, and its index.
  for (const char* limit : {"1", "6000", "170000"}) {
    INFO(limit);
    const int status = wait_for(start_child(dir.path(), limit));
    REQUIRE(WIFSIGNALED(status));
    REQUIRE(WTERMSIG(status) == SIGXFSZ);
    CHECK(has_temporary(dir.path()));
    const std::vector<CheckpointInfo> found = list_checkpoints(dir.path());
    REQUIRE(found.size() == 1);
    CHECK(found[0].complete);
    require_loads(found[0].path, mixed_model(1));
  }
  save_one(dir.path(), 2, mixed_model(2));
  CHECK_FALSE(has_temporary(dir.path()));
}

TEST_CASE("kill -9 while saving leaves only whole checkpoints", "[durability]") {
  const TempDir dir;
  save_one(dir.path(), 1, mixed_model(1));
  for (int round = 0; round < 2; ++round) {
    const pid_t child = start_child(dir.path(), "0");
    while (!has_temporary(dir.path())) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    // Another moment of the save each round.
    std::this_thread::sleep_for(std::chrono::microseconds(2'000 * round));
    kill(child, SIGKILL);
    const int status = wait_for(child);
    REQUIRE(WIFSIGNALED(status));
    const std::vector<CheckpointInfo> found = list_checkpoints(dir.path());
    REQUIRE_FALSE(found.empty());
    for (const CheckpointInfo& info : found) {
      INFO(info.problem);
      CHECK(info.complete);
      require_loads(info.path, mixed_model(info.step));
    }
    save_one(dir.path(), 1, mixed_model(1), {.keep_last = 1});
  }
}

TEST_CASE("two folders are exchanged in one step", "[durability]") {
  const TempDir dir;
  fs::create_directories(dir.path() / "new");
  fs::create_directories(dir.path() / "old");
  write_file(dir.path() / "new" / "which", "new");
  write_file(dir.path() / "old" / "which", "old");
  colossal::detail::move_into_place(dir.path() / "new", dir.path() / "old");
  CHECK(read_file(dir.path() / "old" / "which") == "new");
  CHECK(read_file(dir.path() / "new" / "which") == "old");
}

}  // namespace colossal::test
