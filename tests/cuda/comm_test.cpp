// Are collectives of GPUs correct, and do two GPUs learn what one learns?
#include "mesh/device.hpp"
#include "support/close.hpp"
#include "support/gpu.hpp"
#include "support/ranks.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <string>

using namespace colossal;        // NOLINT(google-build-using-namespace): a test file
using namespace colossal::test;  // NOLINT(google-build-using-namespace)

namespace {

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong};

at::Tensor numbers(std::int64_t first, std::int64_t count, const at::TensorOptions& options) {
  return at::arange(first, first + count, at::kLong).to(options);
}

void check_collectives(RankContext& ctx) {
  const Comm& comm = ctx.comm();
  for (const at::ScalarType type : kTypes) {
    INFO(c10::toString(type));
    const at::TensorOptions options = at::TensorOptions(type).device(ctx.world().device());
    at::Tensor sum = numbers(comm.rank(), 5, options);
    comm.all_reduce(sum).wait();
    CHECK(at::equal(sum, numbers(0, 5, options).mul(2).add(1)));
    at::Tensor largest = numbers(comm.rank(), 5, options);
    comm.all_reduce(largest, ReduceOp::max).wait();
    CHECK(at::equal(largest, numbers(1, 5, options)));
    at::Tensor all = at::empty({2, 3}, options);
    comm.all_gather(all, numbers(3 * comm.rank(), 3, options)).wait();
    CHECK(at::equal(all.view({-1}), numbers(0, 6, options)));
    at::Tensor in_place = numbers(0, 6, options);
    at::Tensor mine = in_place.narrow(0, 3 * comm.rank(), 3);
    comm.reduce_scatter(mine, in_place).wait();
    CHECK(at::equal(mine, numbers(3 * comm.rank(), 3, options).mul(2)));
    at::Tensor out = at::empty({2}, options);
    comm.all_to_all(out, numbers(10 * comm.rank(), 2, options)).wait();
    CHECK(at::equal(out, at::arange(comm.rank(), 20, 10, at::kLong).to(options)));
    at::Tensor x = numbers(comm.rank(), 4, options);
    comm.broadcast(x, 1).wait();
    CHECK(at::equal(x, numbers(1, 4, options)));
  }
  CHECK(comm.gather_text(std::to_string(comm.rank())).at(1) == "1");
  comm.barrier();
}

void check_training(RankContext& ctx) {
  Config config = tiny_gpt();
  config.train.precision = Precision::fp32;
  const Trained whole = train(config, ParallelContext(config, ctx.world().device()));
  for (const std::int64_t stage : {0, 1, 2, 3}) {
    INFO("stage " << stage);
    Config spread = split(config, ctx.size(), 1);
    spread.parallel.zero.stage = stage;
    spread.parallel.zero.bucket_size = 4096;
    const ParallelContext context(spread, ctx.world());
    const Trained run = train(spread, context);
    for (std::size_t i = 0; i < whole.reports.size(); ++i) {
      require_relative(whole.reports[i].loss, run.reports[i].loss, 1e-5, "loss");
    }
  }
}

}  // namespace

TEST_CASE("every collective of 2 GPUs is correct in every dtype", "[cuda][comm]") {
  NEEDS_GPUS(2)
  run_ranks(
      "every collective of 2 GPUs is correct in every dtype", 2, check_collectives, use_device);
}

TEST_CASE("2 GPUs have the losses of one at every stage", "[cuda][comm]") {
  NEEDS_GPUS(2)
  run_ranks("2 GPUs have the losses of one at every stage", 2, check_training, use_device);
}
