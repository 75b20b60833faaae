// Is what is dropped always what is needed last, and is a step that differs noticed?
#include "memory/detail/trace.hpp"

#include "support/catch.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <vector>

namespace colossal::detail {
namespace {

using Order = std::vector<int>;

/// Block b uses chunk b only.
StepTrace trace_of(int num_chunks, const Order& order) {
  std::vector<std::vector<int>> uses;
  for (int chunk = 0; chunk < num_chunks; ++chunk) {
    uses.push_back({chunk});
  }
  StepTrace trace(uses);
  trace.begin();
  for (const int block : order) {
    trace.acquire(block);
  }
  trace.end();
  return trace;
}

/// Gathers of one step that starts with an empty cache of `room` chunks.
int loads(int num_chunks, const Order& order, std::size_t room) {
  StepTrace trace = trace_of(num_chunks, order);
  trace.begin();
  std::set<int> here;
  int count = 0;
  for (const int chunk : order) {
    trace.acquire(chunk);
    if (here.contains(chunk)) {
      continue;
    }
    ++count;
    if (here.size() == room) {
      here.erase(trace.needed_last(Order(here.begin(), here.end())));
    }
    here.insert(chunk);
  }
  return count;
}

/// The fewest gathers that any choice of victims allows.
int fewest(const Order& order, std::size_t at, std::set<int> here, std::size_t room) {
  while (at < order.size() && here.contains(order[at])) {
    ++at;
  }
  if (at == order.size()) {
    return 0;
  }
  if (here.size() < room) {
    here.insert(order[at]);
    return 1 + fewest(order, at + 1, std::move(here), room);
  }
  int best = std::numeric_limits<int>::max();
  for (const int victim : here) {
    std::set<int> after = here;
    after.erase(victim);
    after.insert(order[at]);
    best = std::min(best, 1 + fewest(order, at + 1, std::move(after), room));
  }
  return best;
}

/// Forward through all chunks, then back.
Order there_and_back(int num_chunks) {
  Order order;
  for (int i = 0; i < num_chunks; ++i) {
    order.push_back(i);
  }
  for (int i = num_chunks; i-- > 0;) {
    order.push_back(i);
  }
  return order;
}

TEST_CASE("every further place in the cache saves one gather at the turn", "[memory]") {
  // Gathers and drops of 8 chunks: 30, 28, 24, 16 (zero-gemini-elixir 7.2); half of them gathers.
  CHECK(loads(8, there_and_back(8), 1) == 15);
  CHECK(loads(8, there_and_back(8), 2) == 14);
  CHECK(loads(8, there_and_back(8), 4) == 12);
  CHECK(loads(8, there_and_back(8), 8) == 8);
}

TEST_CASE("no choice of victims needs fewer gathers", "[memory]") {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    const int num_chunks = 2 + static_cast<int>(random() % 5);
    Order order;
    for (int i = 0; i < 12; ++i) {
      order.push_back(static_cast<int>(random() % static_cast<unsigned>(num_chunks)));
    }
    for (std::size_t room = 1; room <= 3; ++room) {
      CHECK(loads(num_chunks, order, room) == fewest(order, 0, {}, room));
    }
  }
}

TEST_CASE("what comes next is known from the second step on, until a step differs", "[memory]") {
  StepTrace trace = trace_of(3, {0, 1, 2, 1});
  CHECK_FALSE(trace.known());  // between steps
  CHECK(trace.next_use(1) == std::numeric_limits<std::int64_t>::max());
  trace.begin();
  REQUIRE(trace.known());
  CHECK(trace.chunks_ahead(2) == Order{0, 1});
  trace.acquire(0);
  CHECK(trace.chunks_ahead(9) == Order{1, 2, 1});
  CHECK(trace.next_use(1) == 1);
  CHECK(trace.next_use(2) == 2);
  CHECK(trace.next_use(0) == 4);  // the next step begins with it
  CHECK(trace.used_soon(2, 2));
  CHECK_FALSE(trace.used_soon(2, 1));
  trace.acquire(2);  // not what came last time
  CHECK_FALSE(trace.known());
  CHECK(trace.chunks_ahead(2).empty());
  trace.end();
  CHECK(Order(trace.recorded().begin(), trace.recorded().end()) == Order{0, 2});
  trace.begin();
  CHECK(trace.known());
}

TEST_CASE("a step is steady if it did what the one before did", "[memory]") {
  StepTrace trace = trace_of(2, {0, 1});
  const auto step = [&](const Order& order) {
    trace.begin();
    for (const int block : order) {
      trace.acquire(block);
    }
    trace.end();
    return trace.steady();
  };
  CHECK_FALSE(trace.steady());
  CHECK(step({0, 1}));
  CHECK_FALSE(step({0, 1, 0, 1}));
  CHECK(step({0, 1, 0, 1}));
}

TEST_CASE("acquisitions outside of a step are not recorded", "[memory]") {
  StepTrace trace = trace_of(2, {0, 1});
  trace.acquire(1);
  CHECK(trace.recorded().size() == 2);
  CHECK(trace.position() == 0);
}

}  // namespace
}  // namespace colossal::detail
