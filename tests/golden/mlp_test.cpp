// Do logits, loss, hits and all gradients of the MLP equal those of PyTorch?
#include "golden/gpt_config.hpp"
#include "support/catch.hpp"
#include "support/close.hpp"

#include <string>

namespace colossal::test {
namespace {

Config mlp_config(const Golden& golden, const std::string& variant, Precision precision) {
  Config config;
  config.train.precision = precision;
  config.model.type = ModelType::mlp;
  config.model.in_features = golden.integer(variant, "in_features");
  config.model.out_features = golden.integer(variant, "out_features");
  const at::Tensor layers = golden.tensor(variant + "/layers");
  for (std::int64_t i = 0; i < layers.numel(); ++i) {
    config.model.layers.push_back(layers[i].item<std::int64_t>());
  }
  return config;
}

void check_variant(const std::string& variant, Precision precision, double tolerance) {
  INFO(variant);
  const Golden golden(COLOSSAL_TEST_DATA "/fixtures/mlp.h5");
  const LocalModel model(mlp_config(golden, variant, precision));
  REQUIRE(model.parameters().size() == golden.names(variant + "/weights").size());
  for (const Parameter* const parameter : model.parameters()) {
    load_golden_weight(golden, variant, *parameter, parameter->tensor());
  }
  Batch batch;
  batch.fields["features"] = golden.tensor(variant + "/features");
  batch.fields["labels"] = golden.tensor(variant + "/labels");

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

TEST_CASE("the MLP equals PyTorch in fp64", "[golden]") {
  check_variant("one", Precision::fp64, 1e-12);
  check_variant("two", Precision::fp64, 1e-12);
}

TEST_CASE("the MLP equals PyTorch in fp32 to its rounding", "[golden]") {
  check_variant("one", Precision::fp32, 1e-5);
  check_variant("two", Precision::fp32, 1e-5);
}

}  // namespace colossal::test
