// Do logits, loss, hits and all gradients of the MLP equal those of PyTorch?
#include "golden/gpt_config.hpp"
#include "support/catch.hpp"
#include "support/close.hpp"

#include <string>
#include <utility>

namespace colossal::test {
namespace {

void check_variant(const std::string& variant, Precision precision, double tolerance) {
  INFO(variant);
  const Golden golden(COLOSSAL_TEST_DATA "/fixtures/mlp.h5");
  Config config = golden_mlp_config(golden, variant);
  config.train.precision = precision;
  const LocalModel model(config);
  REQUIRE(model.parameters().size() == golden.names(variant + "/weights").size());
  for (const Parameter* const parameter : model.parameters()) {
    load_golden_weight(golden, variant, *parameter, parameter->tensor());
  }
  Batch batch = golden_mlp_batch(golden, variant);

  const Activation trained = model.forward(batch);
  CHECK_FALSE(trained.num_correct.defined());  // it is counted in evaluation only
  require_close(golden.tensor(variant + "/loss_sum"), trained.loss_sum, tolerance, "loss");
  trained.loss_sum.backward();
  for (const std::string& name : golden.names(variant + "/grads")) {
    const at::Tensor grad = model.find(name)->tensor().grad();
    require_close(golden.tensor(variant + "/grads/" + name), grad, tolerance, name);
  }

  batch.training = false;
  const at::NoGradGuard no_grad;
  CHECK(model.forward(batch).num_correct.item<std::int64_t>() ==
        golden.integer(variant, "num_correct"));
  batch.fields.erase("labels");
  require_close(
      golden.tensor(variant + "/logits"), model.forward(batch)["logits"], tolerance, "logits");
}

}  // namespace

TEST_CASE("the MLP with label smoothing equals PyTorch", "[golden]") {
  const Golden golden(COLOSSAL_TEST_DATA "/fixtures/mlp.h5");
  const std::string variant = GENERATE("one", "two");
  const auto [precision, tolerance] =
      GENERATE(std::pair{Precision::fp64, 1e-12}, std::pair{Precision::fp32, 1e-5});
  INFO(variant);
  Config config = golden_mlp_config(golden, variant);
  config.train.precision = precision;
  const LocalModel model(config);
  for (const Parameter* const parameter : model.parameters()) {
    load_golden_weight(golden, variant, *parameter, parameter->tensor());
  }
  const std::string group = variant + "/smoothed";
  Batch batch = golden_mlp_batch(golden, variant);
  batch.loss.smoothing = golden.number(group, "label_smoothing");
  const at::Tensor loss = model.forward(batch).loss_sum;
  require_close(golden.tensor(group + "/loss_sum"), loss, tolerance, "loss");
  loss.backward();
  for (const std::string& name : golden.names(group + "/grads")) {
    require_close(golden.tensor(group + "/grads/" + name),
                  model.find(name)->tensor().grad(),
                  tolerance,
                  name);
  }
}

TEST_CASE("the MLP equals PyTorch in fp64", "[golden]") {
  check_variant("one", Precision::fp64, 1e-12);
  check_variant("two", Precision::fp64, 1e-12);
}

TEST_CASE("the MLP equals PyTorch in fp32 to its rounding", "[golden]") {
  check_variant("one", Precision::fp32, 1e-5);
  check_variant("two", Precision::fp32, 1e-5);
}

}  // namespace colossal::test
