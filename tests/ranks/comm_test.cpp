// Are all collectives correct on 2 to 4 ranks, for every dtype?
#include "support/ranks.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

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
