// Does the launcher keep its hands free, whatever a rank writes and whatever the system refuses?
#include "comm/launch.hpp"

#include "comm/detail/local_job.hpp"
#include "core/error.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

using colossal::Descriptor;
using colossal::detail::kLongestPiece;
using colossal::detail::LocalJob;
using colossal::detail::Stream;
using namespace std::chrono_literals;

namespace {

/// What ranks of this test do is said here; the program is this one.
constexpr const char* kTask = "COLOSSAL_TEST_TASK";

/// No new descriptor while it lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const Descriptor next(::dup(STDERR_FILENO));
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(next.get());
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

bool is_blocked(int signal) {
  sigset_t set;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &set);
  return sigismember(&set, signal) == 1;
}

struct Heard {
  std::vector<std::size_t> sizes;  ///< of the pieces that a rank wrote as its task
  std::string text;
};

colossal::detail::LocalJobOptions job_of_one(const char* task) {
  return {1, {"unit_comm_test", "[rank]"}, {{kTask, task}}};
}

LocalJob::LineSink keep_in(Heard& heard) {
  return [&heard](int, Stream stream, std::string_view line) {
    if (stream == Stream::err) {
      heard.sizes.push_back(line.size());
      heard.text += line;
    }
  };
}

}  // namespace

TEST_CASE("what a rank of these tests does", "[.rank]") {
  const char* task = std::getenv(kTask);
  REQUIRE(task != nullptr);
  const std::string block(1U << 20U, 'x');
  // No end in sight: until somebody kills it.
  for (int i = 0; std::string(task) == "endless" || i < 5; ++i) {
    std::fwrite(block.data(), 1, block.size(), stderr);
    if (std::string(task) == "endless") {
      std::fputc('\n', stderr);
    }
  }
  std::fputs("\nend\n", stderr);
}

TEST_CASE("signals stayed blocked where signalfd fails", "[launch]") {
  REQUIRE_FALSE(is_blocked(SIGTERM));
  std::string id;
  std::string text;
  {
    const NoDescriptors none;
    try {
      static_cast<void>(colossal::launch_local({1, {"unit_comm_test", "[rank]"}}));
    } catch (const colossal::Error& error) {
      id = error.id();
      text = error.what();
    }
  }
  CHECK(id == "launch-spawn");
  CHECK(text.starts_with("cannot start the ranks: signalfd: "));
  CHECK_FALSE(is_blocked(SIGTERM));
  CHECK_FALSE(is_blocked(SIGINT));
}

TEST_CASE("a line without end comes in pieces, nothing is lost", "[launch]") {
  Heard heard;
  LocalJob job(job_of_one("long"), keep_in(heard));
  while (job.num_running() > 0) {
    static_cast<void>(job.poll(100ms));
  }
  CHECK(std::ranges::count(heard.text, 'x') == 5 << 20);
  CHECK(heard.text.ends_with("x\nend\n"));
  // No piece waits for much more than its share: the next read is 16 KiB at most.
  CHECK(*std::ranges::max_element(heard.sizes) <= kLongestPiece + 16384);
  CHECK(heard.sizes.size() >= 3);
}

TEST_CASE("a rank that writes faster than it is read kept the launcher for ever", "[launch]") {
  Heard heard;
  LocalJob job(job_of_one("endless"), keep_in(heard));
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    const std::size_t before = heard.text.size();
    static_cast<void>(job.poll(1s));
    // One call passes on what it has read, 1 MiB, and what was held back.
    CHECK(heard.text.size() - before <= (1U << 20U) + kLongestPiece);
  }
  CHECK(std::chrono::steady_clock::now() - start < 60s);
  CHECK(job.num_running() == 1);
  job.signal_all(SIGKILL);
}
