// Which dtypes follow from precision, accumulation and the number of data ranks?
#include "memory/store_options.hpp"

#include "config/config.hpp"

#include <catch2/catch.hpp>

namespace colossal::test {
namespace {

Config bf16(std::int64_t data, std::int64_t accumulation) {
  Config config;
  config.train.precision = Precision::bf16;
  config.train.gradient_accumulation = accumulation;
  config.parallel.data = data;
  return config;
}

}  // namespace

TEST_CASE(
    "gradients are summed in fp32 over ranks, and left as they are where one rank has them all",
    "[store_options]") {
  for (const std::int64_t accumulation : {1, 4}) {
    const at::ScalarType kept = accumulation > 1 ? at::kFloat : at::kBFloat16;
    CHECK(store_options(bf16(1, accumulation)).grad == kept);
    CHECK(store_options(bf16(1, accumulation)).reduce == kept);
    CHECK(store_options(bf16(2, accumulation)).grad == kept);
    CHECK(store_options(bf16(2, accumulation)).reduce == at::kFloat);
    Config same = bf16(2, accumulation);
    same.parallel.zero.reduce_dtype = ReduceDtype::same;
    CHECK(store_options(same).reduce == kept);
  }
}

TEST_CASE("masters and states are fp32 under 16 bits and fp64 under fp64", "[store_options]") {
  Config config = bf16(1, 1);
  CHECK(store_options(config).compute == at::kBFloat16);
  CHECK(store_options(config).master == at::kFloat);
  CHECK(store_options(config).state == at::kFloat);
  config.optimizer.state_dtype = StateDtype::bf16;
  CHECK(store_options(config).state == at::kBFloat16);
  config.train.precision = Precision::fp64;
  config.optimizer.state_dtype = StateDtype::fp32;
  CHECK(store_options(config).master == at::kDouble);
  CHECK(store_options(config).state == at::kDouble);
}

}  // namespace colossal::test
