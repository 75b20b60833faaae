// Is the MLP made of the blocks, names and costs that its section says, and are its gradients
// right?
#include "models/mlp.hpp"

#include "support/catch.hpp"
#include "support/gradcheck.hpp"
#include "support/local_model.hpp"
#include "support/tiny_models.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/sin.h>

#include <string>
#include <vector>

namespace colossal::test {
namespace {

Batch rows() {
  Batch batch;
  batch.fields["features"] = at::sin(at::arange(12, at::kFloat)).view({4, 1, 3});
  batch.fields["labels"] = at::arange(4).remainder(2).view({4, 1});
  batch.fields["labels"].select(0, 2).fill_(kIgnoreLabel);
  return batch;
}

Config small() {
  Config config = tiny_mlp();
  config.model.in_features = 3;
  config.model.layers = {5, 4};
  config.model.out_features = 2;
  config.model.init_std = 0.7;
  return config;
}

TEST_CASE("an MLP has a block per layer with canonical names", "[models]") {
  const LocalModel model(small());
  std::vector<std::string> names;
  for (const Parameter* const parameter : model.parameters()) {
    names.push_back(parameter->spec().name);
  }
  CHECK(names == std::vector<std::string>{"layers.0.weight",
                                          "layers.0.bias",
                                          "layers.1.weight",
                                          "layers.1.bias",
                                          "head.weight",
                                          "head.bias"});
  CHECK(model.blocks().size() == 3);
  CHECK(num_parameters(model.blocks()) == 3 * 5 + 5 + 5 * 4 + 4 + 4 * 2 + 2);
  CHECK(model.find("layers.1.weight")->spec().shape == Shape{4, 5});
}

TEST_CASE("every parameter of an MLP passes the gradient check", "[models]") {
  const OneThread one_thread;
  const LocalModel model(small());
  std::vector<at::Tensor> weights;
  for (Parameter* const parameter : model.parameters()) {
    weights.push_back(parameter->tensor());
  }
  check_gradients(
      "mlp",
      [&](const std::vector<at::Tensor>& /*x*/) { return model.forward(rows()).loss_sum; },
      weights);
}

TEST_CASE("the cost of an MLP counts its products and what it keeps", "[models]") {
  const LocalModel model(small());
  const BatchShape shape{.batch = 4, .sequence = 1};
  const BlockCost hidden = model.blocks()[1]->cost(shape);
  CHECK(hidden.forward_flops == 2.0 * 4 * 5 * 4);
  CHECK(hidden.backward_flops == 2 * hidden.forward_flops);
  CHECK(hidden.param_bytes == (5 * 4 + 4) * 8);
  CHECK(hidden.activation_bytes == 4 * (5 + 4) * 8);
  CHECK(hidden.boundary_bytes == 4 * 4 * 8);
  CHECK(model.blocks()[2]->cost(shape).boundary_bytes == 0);
}

}  // namespace
}  // namespace colossal::test
