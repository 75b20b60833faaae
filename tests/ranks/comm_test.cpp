// Are all collectives correct on 2 to 4 ranks, for every dtype?
#include "process.hpp"
#include "support/ranks.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <string>
#include <vector>

using colossal::Comm;
using colossal::ReduceOp;
using colossal::test::RankContext;

namespace {

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong};

/// `count` small whole numbers beginning at `first`: exact in every dtype.
at::Tensor numbers(std::int64_t first, std::int64_t count, at::ScalarType type) {
  return at::arange(first, first + count, at::kLong).to(type);
}

/// The sum over ranks r < num_ranks of numbers(first + r, count).
at::Tensor summed(std::int64_t first, std::int64_t count, int num_ranks, at::ScalarType type) {
  return numbers(first, count, at::kLong)
      .mul(num_ranks)
      .add(num_ranks * (num_ranks - 1) / 2)
      .to(type);
}

void check_all_reduce(const Comm& comm, at::ScalarType type) {
  const int n = comm.size();
  at::Tensor sum = numbers(comm.rank(), 5, type);
  comm.all_reduce(sum).wait();
  CHECK(at::equal(sum, summed(0, 5, n, type)));
  at::Tensor largest = numbers(comm.rank(), 5, type);
  comm.all_reduce(largest, ReduceOp::max).wait();
  CHECK(at::equal(largest, numbers(n - 1, 5, type)));
  at::Tensor smallest = numbers(comm.rank(), 5, type);
  comm.all_reduce(smallest, ReduceOp::min).wait();
  CHECK(at::equal(smallest, numbers(0, 5, type)));
}

void check_gather_and_scatter(const Comm& comm, at::ScalarType type) {
  const int n = comm.size();
  at::Tensor all = at::empty({n, 3}, type);
  comm.all_gather(all, numbers(3 * comm.rank(), 3, type)).wait();
  CHECK(at::equal(all.view({-1}), numbers(0, 3 * n, type)));

  at::Tensor part = at::empty({3}, type);
  comm.reduce_scatter(part, numbers(comm.rank(), 3 * n, type)).wait();
  CHECK(at::equal(part, summed(3 * comm.rank(), 3, n, type)));
}

void check_exchange_and_broadcast(const Comm& comm, at::ScalarType type) {
  const int n = comm.size();
  // Part s of rank r holds 10 r + s; rank s gets part s of everybody, in rank order.
  at::Tensor out = at::empty({n, 2}, type);
  const at::Tensor in = numbers(10 * comm.rank(), n, type).view({n, 1}).expand({n, 2}).contiguous();
  comm.all_to_all(out, in).wait();
  for (int r = 0; r < n; ++r) {
    CHECK(at::equal(out[r], at::full({2}, 10 * r + comm.rank(), type)));
  }
  at::Tensor x = numbers(comm.rank(), 4, type);
  comm.broadcast(x, n - 1).wait();
  CHECK(at::equal(x, numbers(n - 1, 4, type)));
}

void check_all(const RankContext& ctx) {
  for (const at::ScalarType type : kTypes) {
    INFO(c10::toString(type));
    check_all_reduce(ctx.comm(), type);
    check_gather_and_scatter(ctx.comm(), type);
    check_exchange_and_broadcast(ctx.comm(), type);
  }
}

}  // namespace

RANKS_TEST_CASE("every collective is correct in every dtype on 2 ranks", "[comm]", 2) {
  check_all(ctx);
}
RANKS_TEST_CASE("every collective is correct in every dtype on 3 ranks", "[comm]", 3) {
  check_all(ctx);
}
RANKS_TEST_CASE("every collective is correct in every dtype on 4 ranks", "[comm]", 4) {
  check_all(ctx);
}

RANKS_TEST_CASE("texts of any length are gathered in rank order", "[comm]", 3) {
  const std::string mine(static_cast<std::size_t>(ctx.rank()) * 1000,
                         static_cast<char>('a' + ctx.rank()));
  const auto texts = ctx.comm().gather_text(mine);
  REQUIRE(texts.size() == 3);
  CHECK(texts[0].empty());
  CHECK(texts[1] == std::string(1000, 'b'));
  CHECK(texts[2] == std::string(2000, 'c'));
  CHECK(ctx.comm().gather_text("").at(2).empty());
}

RANKS_TEST_CASE("collectives run side by side and finish in any order of waiting", "[comm]", 2) {
  std::vector<at::Tensor> tensors;
  std::vector<colossal::Pending> pending;
  for (int i = 0; i < 8; ++i) {
    tensors.push_back(at::full({50'000}, ctx.rank() + i, at::kDouble));
    pending.push_back(ctx.comm().all_reduce(tensors.back()));
  }
  for (std::size_t i = 8; i-- > 0;) {
    pending[i].wait();
    CHECK(at::equal(tensors[i], at::full({50'000}, 2.0 * static_cast<double>(i) + 1, at::kDouble)));
  }
  {
    const auto waited_by_destructor = ctx.comm().all_reduce(tensors[0]);
  }
  CHECK(tensors[0][0].item<double>() == 2.0);
}

RANKS_TEST_CASE("groups see their own ranks only", "[comm]", 4) {
  // Rows {0,1} {2,3} and columns {0,2} {1,3} of a 2 x 2 mesh.
  const int row = ctx.rank() / 2;
  const int column = ctx.rank() % 2;
  const Comm along_row = ctx.world().make_group("row", {2 * row, 2 * row + 1});
  const Comm along_column = ctx.world().make_group("column", {column, column + 2});
  CHECK(ctx.world().make_group("alone", {ctx.rank()}).size() == 1);
  CHECK(along_row.name() == "row");
  CHECK(along_row.rank() == column);
  CHECK(along_column.rank() == row);
  CHECK(along_column.ranks() == std::vector<int>{column, column + 2});
  at::Tensor x = at::full({1}, ctx.rank(), at::kLong);
  along_row.all_reduce(x).wait();
  CHECK(x.item<std::int64_t>() == 4 * row + 1);
  along_column.all_reduce(x).wait();
  CHECK(x.item<std::int64_t>() == 6);

  // The same name and ranks again give the same group; other ranks need another name.
  ctx.world().make_group("row", along_row.ranks()).all_reduce(x).wait();
  CHECK(x.item<std::int64_t>() == 12);
  try {
    static_cast<void>(ctx.world().make_group("row", along_column.ranks()));
    FAIL("accepted");
  } catch (const colossal::Error& error) {
    CHECK(error.id() == "group-name");
  }
}

RANKS_TEST_CASE("wrong groups are refused", "[comm]", 2) {
  const auto id_of = [&](const char* name, const std::vector<int>& ranks) {
    try {
      static_cast<void>(ctx.world().make_group(name, ranks));
    } catch (const colossal::Error& error) {
      return std::string(error.id());
    }
    return std::string();
  };
  CHECK(id_of("descending", {1, 0}) == "group-ranks");
  CHECK(id_of("without me", {2, 3}) == "group-ranks");
}

RANKS_TEST_CASE("counters hold the calls and bytes of every operation", "[comm]", 2) {
  const Comm comm = ctx.world().make_group("counted", {0, 1});
  CHECK(comm.counters().empty());
  at::Tensor x = at::ones({10});
  at::Tensor both = at::empty({20});
  comm.all_reduce(x).wait();
  comm.all_reduce(x).wait();
  comm.all_gather(both, x).wait();
  comm.reduce_scatter(x, both).wait();
  comm.barrier();
  const auto counters = comm.counters();
  REQUIRE(counters.size() == 4);
  const auto is = [&](std::size_t i, const char* label, std::int64_t calls, std::int64_t bytes) {
    return counters[i].label == label && counters[i].calls == calls && counters[i].bytes == bytes;
  };
  CHECK(is(0, "all_reduce", 2, 80));
  CHECK(is(1, "all_gather", 1, 40));
  CHECK(is(2, "reduce_scatter", 1, 80));
  CHECK(is(3, "barrier", 1, 0));
}

RANKS_TEST_CASE("a closed world refuses collectives and closes twice", "[comm]", 2) {
  const Comm comm = ctx.comm();
  ctx.world().close();
  at::Tensor x = at::ones({1});
  try {
    comm.all_reduce(x).wait();
    FAIL("worked after close");
  } catch (const colossal::Error& error) {
    CHECK(error.id() == "group-closed");
  }
}

// Run by the next test only, in a process of its own.
RANKS_TEST_CASE("fails on rank 1", "[.]", 2) {
  ctx.comm().barrier();
  REQUIRE(ctx.rank() == 0);
  ctx.comm().barrier();
}

TEST_CASE("a rank that fails ends the test with its text", "[ranks]") {
  colossal::test::Process test({"/proc/self/exe", "fails on rank 1"}, {});
  REQUIRE(test.wait(std::chrono::seconds(20)) == 1);
  INFO(test.out());
  CHECK(colossal::test::count_of(test.out(), "rank 1 of 2 ended with code 1") == 1);
  CHECK(colossal::test::count_of(test.out(), "REQUIRE( ctx.rank() == 0 )") == 1);
  CHECK(colossal::test::count_of(test.out(), "1 == 0") == 1);
}
