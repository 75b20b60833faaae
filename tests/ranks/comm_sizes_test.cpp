// Are collectives right for odd sizes, many at a time, in several groups at once, and for numbers
// that are none?
#include "support/ranks.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

using colossal::Comm;
using colossal::Pending;
using colossal::ReduceOp;
using colossal::test::RankContext;

namespace {

/// Sizes around those at which transports change their ways: one element, pages, odd remainders.
const std::vector<std::int64_t> kSizes = {1, 2, 3, 17, 1023, 1024, 1025, 4097, 100'003};

at::Tensor numbers(std::int64_t first, std::int64_t count) {
  return at::arange(first, first + count, at::kLong).remainder(1000).to(at::kDouble);
}

/// Numbers of one rank, all different from those of others.
at::Tensor of_rank(int rank, std::int64_t count) {
  return numbers(0, count).mul(rank + 1).add(rank * 0.5);
}

at::Tensor sum_over(int ranks, std::int64_t count) {
  at::Tensor sum = at::zeros({count}, at::kDouble);
  for (int rank = 0; rank < ranks; ++rank) {
    sum.add_(of_rank(rank, count));
  }
  return sum;
}

void check_sizes(const Comm& comm) {
  const int n = comm.size();
  for (const std::int64_t size : kSizes) {
    INFO(size << " elements on " << n << " ranks");
    at::Tensor sum = of_rank(comm.rank(), size);
    comm.all_reduce(sum).wait();
    CHECK(at::equal(sum, sum_over(n, size)));

    at::Tensor all = at::empty({n * size}, at::kDouble);
    comm.all_gather(all, of_rank(comm.rank(), size)).wait();
    at::Tensor part = at::empty({size}, at::kDouble);
    comm.reduce_scatter(part, of_rank(comm.rank(), n * size)).wait();
    CHECK(at::equal(part, sum_over(n, n * size).narrow(0, comm.rank() * size, size)));
    for (int rank = 0; rank < n; ++rank) {
      CHECK(at::equal(all.narrow(0, rank * size, size), of_rank(rank, size)));
      at::Tensor x = of_rank(comm.rank(), size);
      comm.broadcast(x, rank).wait();
      CHECK(at::equal(x, of_rank(rank, size)));
    }
  }
}

}  // namespace

RANKS_TEST_CASE("collectives of odd sizes from every root on 2 ranks", "[comm-sizes]", 2) {
  check_sizes(ctx.comm());
}
RANKS_TEST_CASE("collectives of odd sizes from every root on 3 ranks", "[comm-sizes]", 3) {
  check_sizes(ctx.comm());
}

RANKS_TEST_CASE("a part of the result may be the input", "[comm-sizes]", 3) {
  const std::int64_t size = 1001;
  at::Tensor all = at::full({3 * size}, -1, at::kDouble);
  const at::Tensor mine = all.narrow(0, ctx.rank() * size, size);
  mine.copy_(of_rank(ctx.rank(), size));
  ctx.comm().all_gather(all, mine).wait();
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(at::equal(all.narrow(0, rank * size, size), of_rank(rank, size)));
  }
  at::Tensor whole = of_rank(ctx.rank(), 3 * size);
  at::Tensor part = whole.narrow(0, ctx.rank() * size, size);
  ctx.comm().reduce_scatter(part, whole).wait();
  CHECK(at::equal(part, sum_over(3, 3 * size).narrow(0, ctx.rank() * size, size)));
}

RANKS_TEST_CASE("reductions keep what is no number, and infinities", "[comm-sizes]", 2) {
  const double infinity = std::numeric_limits<double>::infinity();
  at::Tensor x = at::zeros({4}, at::kDouble);
  x[0].fill_(ctx.rank() == 1 ? std::nan("") : 1);
  x[1].fill_(ctx.rank() == 0 ? infinity : 1);
  x[2].fill_(ctx.rank() == 0 ? infinity : -infinity);
  x[3].fill_(0x1p-1074);
  at::Tensor sum = x.clone();
  ctx.comm().all_reduce(sum).wait();
  CHECK(std::isnan(sum[0].item<double>()));
  CHECK(sum[1].item<double>() == infinity);
  CHECK(std::isnan(sum[2].item<double>()));
  CHECK(sum[3].item<double>() == 0x1p-1073);
  at::Tensor largest = x.narrow(0, 1, 3).clone();
  ctx.comm().all_reduce(largest, ReduceOp::max).wait();
  CHECK(largest[0].item<double>() == infinity);
  CHECK(largest[1].item<double>() == infinity);
  at::Tensor least = x.narrow(0, 1, 3).clone();
  ctx.comm().all_reduce(least, ReduceOp::min).wait();
  CHECK(least[0].item<double>() == 1);
  CHECK(least[1].item<double>() == -infinity);
}

RANKS_TEST_CASE("integers are summed exactly, beyond what a double holds", "[comm-sizes]", 2) {
  const std::int64_t large = (std::int64_t{1} << 53) + 1;
  at::Tensor x = at::full({3}, large, at::kLong);
  ctx.comm().all_reduce(x).wait();
  CHECK(at::equal(x, at::full({3}, 2 * large, at::kLong)));
  at::Tensor y = at::full({1}, ctx.rank() == 0 ? -large : large, at::kLong);
  ctx.comm().all_reduce(y, ReduceOp::min).wait();
  CHECK(y.item<std::int64_t>() == -large);
}

RANKS_TEST_CASE("sums of 16 bits are those of two numbers, rounded once", "[comm-sizes]", 2) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor mine = of_rank(ctx.rank(), 301).div(7).to(type);
    at::Tensor sum = mine.clone();
    ctx.comm().all_reduce(sum).wait();
    const at::Tensor expected = of_rank(0, 301)
                                    .div(7)
                                    .to(type)
                                    .to(at::kDouble)
                                    .add(of_rank(1, 301).div(7).to(type).to(at::kDouble))
                                    .to(type);
    CHECK(at::equal(sum, expected));
  }
}

RANKS_TEST_CASE("different collectives of two groups run at the same time", "[comm-sizes]", 4) {
  // Rows {0,1} {2,3} and columns {0,2} {1,3}: every rank is in one of each.
  const int row = ctx.rank() / 2;
  const int column = ctx.rank() % 2;
  const Comm along_row = ctx.world().make_group("row", {2 * row, 2 * row + 1});
  const Comm along_column = ctx.world().make_group("column", {column, column + 2});
  constexpr std::size_t kRounds = 20;
  std::vector<at::Tensor> sums(kRounds);
  std::vector<at::Tensor> parts(kRounds);
  std::vector<at::Tensor> gathered(kRounds);
  std::vector<Pending> pending;
  for (std::size_t i = 0; i < kRounds; ++i) {
    const auto size = static_cast<std::int64_t>(100 + 37 * i);
    sums[i] = of_rank(ctx.rank(), size);
    pending.push_back(along_row.all_reduce(sums[i]));
    parts[i] = of_rank(ctx.rank(), size);
    gathered[i] = at::empty({2 * size}, at::kDouble);
    pending.push_back(along_column.all_gather(gathered[i], parts[i]));
  }
  for (std::size_t i = pending.size(); i-- > 0;) {
    pending[i].wait();
  }
  for (std::size_t i = 0; i < kRounds; ++i) {
    const auto size = static_cast<std::int64_t>(100 + 37 * i);
    INFO("round " << i);
    CHECK(at::equal(sums[i], of_rank(2 * row, size).add(of_rank(2 * row + 1, size))));
    CHECK(at::equal(gathered[i].narrow(0, 0, size), of_rank(column, size)));
    CHECK(at::equal(gathered[i].narrow(0, size, size), of_rank(column + 2, size)));
  }
}

RANKS_TEST_CASE("members of a group may be any ranks", "[comm-sizes]", 4) {
  // Not neighbours, not all; 1 is in none but its own.
  const bool member = ctx.rank() != 1;
  const Comm odd = ctx.world().make_group(member ? "odd" : "alone",
                                          member ? std::vector<int>{0, 2, 3} : std::vector<int>{1});
  CHECK(odd.size() == (member ? 3 : 1));
  const std::vector<int> place = {0, 0, 1, 2};
  CHECK(odd.rank() == place[static_cast<std::size_t>(ctx.rank())]);
  at::Tensor x = at::full({5}, ctx.rank(), at::kDouble);
  odd.all_reduce(x).wait();
  CHECK(at::equal(x, at::full({5}, member ? 5 : 1, at::kDouble)));
  const std::vector<std::string> texts = odd.gather_text(std::to_string(ctx.rank()));
  CHECK(texts ==
        (member ? std::vector<std::string>{"0", "2", "3"} : std::vector<std::string>{"1"}));
  at::Tensor from_last = at::full({2}, ctx.rank(), at::kLong);
  odd.broadcast(from_last, odd.size() - 1).wait();
  CHECK(from_last[0].item<std::int64_t>() == (member ? 3 : 1));
}

RANKS_TEST_CASE("tensors that cannot be meant are refused on every rank, nothing is sent",
                "[comm-sizes]",
                2) {
  const Comm& comm = ctx.comm();
  const auto id_of = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const colossal::Error& error) {
      return std::string(error.id());
    }
    return "";
  };
  at::Tensor three = at::zeros({3}, at::kDouble);
  at::Tensor five = at::zeros({5}, at::kDouble);
  at::Tensor floats = at::zeros({6}, at::kFloat);
  CHECK(id_of([&] { comm.all_gather(five, three).wait(); }) == "comm-numel");
  CHECK(id_of([&] { comm.reduce_scatter(three, five).wait(); }) == "comm-numel");
  CHECK(id_of([&] { comm.all_gather(floats, three).wait(); }) == "comm-dtype");
  CHECK(id_of([&] { comm.broadcast(three, 2).wait(); }) == "comm-root");
  CHECK(id_of([&] { comm.broadcast(three, -1).wait(); }) == "comm-root");
  at::Tensor turned = at::zeros({4, 3}, at::kDouble).t();
  CHECK(id_of([&] { comm.all_reduce(turned).wait(); }) == "comm-contiguous");
  at::Tensor flags = at::zeros({3}, at::kBool);
  CHECK(id_of([&] { comm.all_reduce(flags).wait(); }) == "comm-dtype");
  at::Tensor x = at::full({1}, ctx.rank() + 1, at::kDouble);  // and everything still works
  comm.all_reduce(x).wait();
  CHECK(x.item<double>() == 3);
}

RANKS_TEST_CASE("a thousand small sums keep their order", "[comm-sizes]", 2) {
  for (int i = 0; i < 1000; ++i) {
    at::Tensor x = at::full({1 + i % 3}, i * (ctx.rank() + 1), at::kLong);
    ctx.comm().all_reduce(x).wait();
    REQUIRE(x[0].item<std::int64_t>() == 3 * i);
  }
}
