// How does a test run on several ranks? RANKS_TEST_CASE: one process per rank, re-executing the
// test's own binary.
#pragma once

#include "comm/comm.hpp"
#include "comm/world.hpp"
#include "support/catch.hpp"

namespace colossal::test {

/// What the body of a rank test sees.
class RankContext {
 public:
  explicit RankContext(World& world) : world_(world) {}
  [[nodiscard]] World& world() const { return world_; }
  [[nodiscard]] const Comm& comm() const { return world_.comm(); }
  [[nodiscard]] int rank() const { return world_.rank(); }
  [[nodiscard]] int size() const { return world_.size(); }

 private:
  World& world_;
};

/// In the test program: starts `num_ranks` processes that run only the test called `name`, stops
/// all at the first failure or after 240 s, and fails with the text of the rank that failed first.
/// In such a process: runs `body` on a World of that size and closes it. With `use`, each rank
/// computes on the GPU of its local rank, which `use` makes ready first.
void run_ranks(const char* name,
               int num_ranks,
               void (*body)(RankContext&),
               void (*use)(at::Device) = nullptr);

}  // namespace colossal::test

#define COLOSSAL_RANKS_CASE(body, name, tags, num_ranks) \
  static void body(colossal::test::RankContext& ctx);    \
  TEST_CASE(name, tags) {                                \
    colossal::test::run_ranks(name, num_ranks, &body);   \
  }                                                      \
  static void body([[maybe_unused]] colossal::test::RankContext& ctx)
#define COLOSSAL_RANKS_JOIN_(a, b) a##b
#define COLOSSAL_RANKS_JOIN(a, b) COLOSSAL_RANKS_JOIN_(a, b)

/// RANKS_TEST_CASE("all_gather keeps order", "[comm]", 4) { ... ctx.comm() ... REQUIRE(...); }
#define RANKS_TEST_CASE(name, tags, num_ranks) \
  COLOSSAL_RANKS_CASE(COLOSSAL_RANKS_JOIN(ranks_body_, __LINE__), name, tags, num_ranks)
