// Do activations keep names in order and complain about absent ones?
#include "nn/block.hpp"

#include "core/error.hpp"
#include "support/catch.hpp"

#include <ATen/ops/full.h>

namespace colossal {

TEST_CASE("an activation keeps its tensors in order of first set", "[nn]") {
  Activation x;
  x.set("hidden", at::full({1}, 1.0));
  x.set("memory", at::full({1}, 2.0));
  x.set("hidden", at::full({1}, 3.0));
  REQUIRE(x.tensors().size() == 2);
  REQUIRE(x.tensors()[0].first == "hidden");
  REQUIRE(x.tensors()[1].first == "memory");
  REQUIRE(x["hidden"].item<double>() == 3);
  REQUIRE(!x.loss_sum.defined());
}

TEST_CASE("an absent field of a batch is an internal error", "[nn]") {
  Batch batch;
  batch.fields["tokens"] = at::full({1}, 3.0);
  REQUIRE(batch.at("tokens").numel() == 1);
  try {
    (void)batch.at("labels");
    FAIL("an absent field was found");
  } catch (const Error& error) {
    REQUIRE(error.id() == "batch-field");
    REQUIRE(error.kind() == ErrorKind::internal);
  }
}

TEST_CASE("an absent tensor of an activation is an internal error", "[nn]") {
  const Activation x;
  try {
    (void)x["hidden"];
    FAIL("an absent name was found");
  } catch (const Error& error) {
    REQUIRE(error.id() == "activation-name");
    REQUIRE(error.kind() == ErrorKind::internal);
  }
}

}  // namespace colossal
