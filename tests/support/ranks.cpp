// How are the processes of a rank test started, and whose failure is reported?
#include "support/ranks.hpp"

#include "comm/detail/local_job.hpp"
#include "comm/launch.hpp"

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

namespace colossal::test {
namespace {

constexpr std::chrono::seconds kTimeout{240};  // a machine may have other work
constexpr const char* kTestVariable = "COLOSSAL_RANKS_TEST";

/// The test's name as a Catch2 test specification, in which some characters have a meaning.
std::string escape(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (c == ',' || c == '[' || c == '\\' || c == '*') {
      text += '\\';
    }
    text += c;
  }
  return text;
}

void run_child(void (*body)(RankContext&), void (*use)(at::Device)) {
  guard_child();
  WorldTimeouts timeouts;
  timeouts.init = kTimeout;
  timeouts.collective = kTimeout;
  // Not closed on failure: the other ranks are inside collectives, and the parent ends them.
  const LaunchOptions launch = detect_launch();
  Identity identity{"test", "test"};
  if (use != nullptr) {
    identity.device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(launch.local_rank));
    use(identity.device);
  }
  const auto world = World::connect(launch, identity, timeouts);
  RankContext context(*world);
  body(context);
  world->close();
}

void run_parent(const char* name, int num_ranks) {
  detail::LocalJobOptions options;
  options.num_ranks = num_ranks;
  options.arguments = {"ranks-test", escape(name)};
  options.environment = {{kTestVariable, name}, {"OMP_NUM_THREADS", "1"}};
  std::vector<std::string> output(static_cast<std::size_t>(num_ranks));
  detail::LocalJob job(options, [&](int rank, detail::Stream, std::string_view line) {
    output[static_cast<std::size_t>(rank)] += line;
  });
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  while (job.num_running() > 0) {
    for (const detail::ChildExit& exit : job.poll(std::chrono::milliseconds(100))) {
      if (exit.code != 0) {
        FAIL("rank " << exit.rank << " of " << num_ranks << " ended with code " << exit.code
                     << ":\n"
                     << output[static_cast<std::size_t>(exit.rank)]);
      }
    }
    if (std::chrono::steady_clock::now() > deadline) {
      std::string all;
      for (int rank = 0; rank < num_ranks; ++rank) {
        all += fmt::format("rank {}:\n{}\n", rank, output[static_cast<std::size_t>(rank)]);
      }
      FAIL("still running after " << kTimeout.count() << " s\n" << all);
    }
  }
  SUCCEED();
}

}  // namespace

void run_ranks(const char* name,
               int num_ranks,
               void (*body)(RankContext&),
               void (*use)(at::Device)) {
  if (std::getenv(kTestVariable) != nullptr) {
    run_child(body, use);
  } else {
    run_parent(name, num_ranks);
  }
}

}  // namespace colossal::test
