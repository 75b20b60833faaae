// Do inputs come back from host memory as they went, and does that memory stay?
#include "train/host_inputs.hpp"

#include "memory/device_memory.hpp"
#include "memory/gauge.hpp"
#include "memory/host_memory.hpp"
#include "support/catch.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include <utility>

namespace colossal::test {
namespace {

/// `rows` rows of 512 numbers and an index for each.
Activation input_of(std::int64_t rows) {
  Activation input;
  input.set("hidden", at::arange(rows * 512, at::kDouble).view({rows, 512}).requires_grad_(true));
  input.set("starts", at::arange(rows, at::kLong));
  return input;
}

std::int64_t host_bytes() {
  return gauge(MemoryKind::host).use().current;
}

}  // namespace

TEST_CASE("an input comes back as the leaves that it was", "[recompute]") {
  (void)device_memory();
  HostInputs inputs(at::kCPU);
  Activation input = input_of(8);
  const Activation expected = input_of(8);
  const std::int64_t with_input = device_memory().use().current;
  HostInput parked = inputs.park(input);
  inputs.left(parked);
  input = {};
  CHECK(device_memory().use().current < with_input - 8 * 512 * 8);  // it is on the host alone
  CHECK(host_bytes() == 8 * kHostPage + kHostPage);
  inputs.begin_return(parked);
  const std::int64_t fetched = device_memory().use().current;
  inputs.begin_return(parked);  // once
  CHECK(device_memory().use().current == fetched);
  const Activation back = inputs.take(std::move(parked));
  REQUIRE(back.tensors().size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& [name, tensor] = back.tensors()[i];
    INFO(name);
    CHECK(name == expected.tensors()[i].first);
    CHECK(at::equal(tensor, expected.tensors()[i].second));
    CHECK(tensor.is_leaf());
    CHECK(tensor.requires_grad() == (name == "hidden"));
  }
}

TEST_CASE("host memory is used again by inputs of the same sizes, and goes with others",
          "[recompute]") {
  const std::int64_t before = host_bytes();
  {
    HostInputs inputs(at::kCPU);
    const auto there_and_back = [&](std::int64_t rows) {
      HostInput first = inputs.park(input_of(rows));
      HostInput second = inputs.park(input_of(rows));
      const at::Tensor hidden = first.parts[0].host;
      CHECK_FALSE(hidden.is_alias_of(second.parts[0].host));
      // Not fetched ahead, and in another order than they went.
      CHECK(at::equal(inputs.take(std::move(second))["hidden"], input_of(rows)["hidden"]));
      CHECK(at::equal(inputs.take(std::move(first))["hidden"], input_of(rows)["hidden"]));
    };
    there_and_back(8);
    CHECK(host_bytes() - before == 2 * (8 + 1) * kHostPage);
    there_and_back(8);
    CHECK(host_bytes() - before == 2 * (8 + 1) * kHostPage);
    there_and_back(4);
    CHECK(host_bytes() - before == 2 * (4 + 1) * kHostPage);
    HostInput none = inputs.park({});  // that of a first block
    CHECK(inputs.take(std::move(none)).tensors().empty());
  }
  CHECK(host_bytes() == before);
}

}  // namespace colossal::test
