// Does every rank get the same verdict about the group? Ranks are threads here: the check uses the
// store only.
#include "comm/detail/group_check.hpp"

#include "comm/detail/peers.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using colossal::Identity;
using colossal::LaunchOptions;
using colossal::detail::check_group;
using colossal::detail::Store;
using namespace std::chrono_literals;

namespace {

struct Claim {
  int rank = 0;
  int local_rank = 0;
  Identity identity{"build", "hash"};
};

/// "exit-code id: message" of every claim, "" where the check passed. Fails unless exactly one rank
/// is to tell an objection.
std::vector<std::string> check_all(const std::vector<Claim>& claims,
                                   int world_size,
                                   std::chrono::milliseconds timeout) {
  const auto server = Store::host({}, 10s);
  std::vector<std::string> results(claims.size());
  std::vector<int> culprits(claims.size());
  std::atomic<int> tellers{0};
  std::vector<std::thread> ranks;
  for (std::size_t i = 0; i < claims.size(); ++i) {
    ranks.emplace_back([&, i] {
      LaunchOptions launch;
      launch.rank = claims[i].rank;
      launch.local_rank = claims[i].local_rank;
      launch.world_size = world_size;
      const auto store = Store::join(server->endpoint(), 10s);
      if (const auto objection = check_group(*store, launch, claims[i].identity, timeout)) {
        results[i] = std::to_string(static_cast<int>(objection->kind)) + " " + objection->id +
                     ": " + objection->message;
        tellers += objection->mine ? 1 : 0;
        culprits[i] = objection->rank;
      }
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  CHECK(tellers == (results.front().empty() ? 0 : 1));
  CHECK(std::all_of(
      culprits.begin(), culprits.end(), [&](int rank) { return rank == culprits.front(); }));
  return results;
}

bool starts_with(const std::string& text, std::string_view start) {
  return text.starts_with(start);
}

}  // namespace

TEST_CASE("equal ranks pass", "[group-check]") {
  for (const std::string& result : check_all({{0, 0}, {1, 1}, {2, 2}}, 3, 10s)) {
    REQUIRE(result.empty());
  }
}

TEST_CASE("a configuration that differs is refused on every rank with one text", "[group-check]") {
  const auto results = check_all({{0, 0}, {1, 1, {"build", "other"}}, {2, 2}}, 3, 10s);
  INFO(results[0]);
  REQUIRE(starts_with(results[0], "3 config-differs: rank 1 on "));
  REQUIRE(results[0].find("configuration differs from rank 0 (hash other vs hash)") !=
          std::string::npos);
  REQUIRE(results[1] == results[0]);
  REQUIRE(results[2] == results[0]);
}

TEST_CASE("ranks that waited for one that had died did so until the end of init_timeout",
          "[group-check]") {
  const auto server = Store::host({}, 10s);
  std::vector<std::string> results(2);
  const auto start = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        LaunchOptions launch;
        launch.rank = rank;
        launch.local_rank = rank;
        launch.world_size = 3;
        const auto store = Store::join(server->endpoint(), 60s);
        const auto objection = check_group(*store, launch, {"build", "hash"}, 60s);
        if (objection && !objection->mine) {
          results[static_cast<std::size_t>(rank)] =
              std::to_string(static_cast<int>(objection->kind)) + " " + objection->id + " " +
              std::to_string(objection->rank) + " " + objection->message;
        }
      });
    }
    std::this_thread::sleep_for(300ms);
    colossal::detail::report_failure(
        *server, {colossal::detail::kLauncherRank, 2, 137, "peer-lost", "gone"});
  }
  CHECK(std::chrono::steady_clock::now() - start < 20s);
  CHECK(results == std::vector<std::string>(2, "8 peer-lost 2 gone"));
}

TEST_CASE("keys that differ are named with both values", "[group-check]") {
  const Identity first{"build", "h0", "a.x = 1\nb = [1, 2]\nsame = 3\nold = 5\n"};
  const Identity second{"build", "h1", "a.x = 2\nb = [1, 3]\nsame = 3\nnew = y = z\n"};
  const auto results = check_all({{0, 0, first}, {1, 1, second}}, 2, 10s);
  INFO(results[0]);
  CHECK(starts_with(results[0], "3 config-differs: rank 1 on "));
  CHECK(
      results[0].ends_with(": configuration differs from rank 0 in 4 keys\n"
                           "  key   a.x = 2 on rank 1, 1 on rank 0\n"
                           "  key   b = [1, 3] on rank 1, [1, 2] on rank 0\n"
                           "  key   new = y = z on rank 1, no key on rank 0\n"
                           "  key   old = no key on rank 1, 5 on rank 0\n"
                           "  fix   give every rank the same file and --set options"));
  CHECK(results[1] == results[0]);
}

TEST_CASE("of many keys that differ ten are shown", "[group-check]") {
  Identity first{"build", "h0", ""};
  Identity second{"build", "h1", ""};
  for (char key = 'a'; key < 'a' + 13; ++key) {
    first.config_keys += std::string(1, key) + " = 1\n";
    second.config_keys += std::string(1, key) + " = 2\n";
  }
  const auto results = check_all({{0, 0, first}, {1, 1, second}}, 2, 10s);
  INFO(results[0]);
  CHECK(results[0].find("in 13 keys\n  key   a = 2 on rank 1, 1 on rank 0\n") != std::string::npos);
  CHECK(results[0].find("  key   j = 2") != std::string::npos);
  CHECK(results[0].find("  key   k = 2") == std::string::npos);
  CHECK(results[0].find("\n  ...   and 3 more\n  fix ") != std::string::npos);
}

TEST_CASE("a build that differs is refused", "[group-check]") {
  const auto results = check_all({{0, 0}, {1, 1, {"newer", "hash"}}}, 2, 10s);
  INFO(results[1]);
  REQUIRE(starts_with(results[1], "8 build-differs: rank 1 on "));
  REQUIRE(results[1].find("runs build newer (protocol 5)") != std::string::npos);
}

TEST_CASE("local ranks of one machine must differ", "[group-check]") {
  const auto results = check_all({{0, 0}, {1, 0}}, 2, 10s);
  INFO(results[0]);
  REQUIRE(starts_with(results[0], "8 local-rank: two ranks on "));
}

TEST_CASE("ranks need equal GPUs, each its own", "[group-check]") {
  const auto on = [](std::string uuid, std::string name) {
    Identity identity{"build", "hash"};
    identity.gpu_uuid = std::move(uuid);
    identity.gpu_name = std::move(name);
    return identity;
  };
  for (const std::string& result :
       check_all({{0, 0, on("GPU-1", "H100")}, {1, 1, on("GPU-2", "H100")}}, 2, 10s)) {
    CHECK(result.empty());
  }
  auto results = check_all({{0, 0, on("GPU-1", "H100")}, {1, 1, on("GPU-1", "H100")}}, 2, 10s);
  CHECK(starts_with(results[0], "8 gpu-shared: ranks 0 and 1 on "));
  CHECK(results[1].find("(H100, GPU-1)") != std::string::npos);
  results = check_all({{0, 0, on("GPU-1", "H100")}, {1, 1, on("GPU-2", "A100")}}, 2, 10s);
  CHECK(starts_with(results[0], "8 gpu-differs: rank 1 on "));
  results = check_all({{0, 0, on("GPU-1", "H100")}, {1, 1}}, 2, 10s);
  CHECK(results[1].find("computes on a CPU") != std::string::npos);
}

TEST_CASE("missing ranks are listed after the timeout", "[group-check]") {
  const auto results = check_all({{0, 0}, {2, 2}}, 4, 200ms);
  INFO(results[0]);
  REQUIRE(starts_with(results[0], "8 rendezvous: ranks 1, 3 of 4 did not arrive within 0.2 s"));
  REQUIRE(results[1] == results[0]);
}

TEST_CASE("a rank that exists twice stops the start", "[group-check]") {
  // Rank 1 is missing, so rank 0 is still waiting when the second rank 2 arrives.
  const auto results = check_all({{0, 0}, {2, 2}, {2, 3}}, 3, 10s);
  for (const std::string& result : results) {
    INFO(result);
    REQUIRE(starts_with(result, "8 duplicate-rank: rank 2 exists twice: process "));
  }
}
