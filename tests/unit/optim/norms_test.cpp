// Is the gradient norm exact over chunks, dtypes and threads, and does it tell of non-finite
// values?
#include "optim/norms.hpp"

#include "support/catch.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <vector>

namespace colossal {
namespace {

/// Gradients of `counts` elements each, all of value `value`, padded to 64.
std::vector<FlatShard> shards_of(const std::vector<std::int64_t>& counts,
                                 double value,
                                 at::ScalarType dtype) {
  std::vector<FlatShard> shards;
  for (const std::int64_t count : counts) {
    FlatShard& shard = shards.emplace_back();
    shard.grad = at::zeros({(count + 63) / 64 * 64}, dtype);
    shard.grad.narrow(0, 0, count).fill_(value);
    shard.segments = {{.param = 0, .begin = 0, .end = count, .offset = 0}};
  }
  return shards;
}

double norm_of(const std::vector<FlatShard>& shards) {
  ParamSpec spec;
  spec.name = "weight";
  Parameter parameter(spec);
  const std::vector<Parameter*> parameters = {&parameter};
  return global_grad_norm(shards, parameters, ParallelContext(Config{}));
}

TEST_CASE("the norm counts every element once and no padding", "[optim]") {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    CHECK(norm_of(shards_of({1, 3}, 2, dtype)) == Approx(4).epsilon(1e-15));
    CHECK(norm_of(shards_of({7, 100'003, 31}, 0.5, dtype)) ==
          Approx(0.5 * std::sqrt(100'041)).epsilon(1e-14));
    CHECK(norm_of(shards_of({}, 0, dtype)) == 0);
  }
}

TEST_CASE("squares are accumulated in double", "[optim]") {
  CHECK(norm_of(shards_of({5}, 1e30, at::kFloat)) ==
        Approx(std::sqrt(5) * double{1e30F}).epsilon(1e-14));
  CHECK(norm_of(shards_of({5}, 1e-30, at::kFloat)) ==
        Approx(std::sqrt(5) * double{1e-30F}).epsilon(1e-14));
}

TEST_CASE("the norm is bit-equal for any number of threads", "[optim]") {
  auto shards = shards_of({70'001}, 0, at::kFloat);
  auto* const values = shards[0].grad.data_ptr<float>();
  for (int i = 0; i < 70'001; ++i) {
    values[i] = std::sin(static_cast<float>(i));
  }
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const double one = norm_of(shards);
  at::set_num_threads(2);
  CHECK(norm_of(shards) == one);
  at::set_num_threads(before);
}

TEST_CASE("one bad element shows in the norm, wherever it stands", "[optim]") {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    for (const std::int64_t place : {0, 40, 20'000, 50'002}) {
      auto shards = shards_of({3, 50'003}, 1, at::kFloat);
      shards[1].grad.data_ptr<float>()[place] = static_cast<float>(bad);
      CHECK_FALSE(std::isfinite(norm_of(shards)));
    }
  }
}

TEST_CASE("parameters split over an axis are counted as they are held", "[optim]") {
  // Two parameters of one chunk: on a mesh of ones both are held once, split or not.
  std::vector<FlatShard> shards = shards_of({128}, 1, at::kFloat);
  shards[0].segments = {{.param = 0, .begin = 0, .end = 64, .offset = 0},
                        {.param = 1, .begin = 0, .end = 64, .offset = 64}};
  ParamSpec split;
  split.layout.dims = {{.axes = {Axis::t0}, .blocks = {}}};
  Parameter first(split);
  Parameter second((ParamSpec()));
  const std::vector<Parameter*> parameters = {&first, &second};
  CHECK(global_grad_norm(shards, parameters, ParallelContext(Config{})) == Approx(std::sqrt(128)));
}

TEST_CASE("the clip factor equals its golden value and is off at 0", "[optim]") {
  CHECK(clip_factor(5, 1) == Approx(0.19999996).epsilon(1e-9));
  CHECK(clip_factor(0.5, 1) == 1);
  CHECK(clip_factor(5, 0) == 1);
  CHECK(clip_factor(0, 1) == 1);
}

}  // namespace
}  // namespace colossal
