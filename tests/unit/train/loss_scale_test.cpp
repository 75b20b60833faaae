// Does an update see gradients without the loss scale that they carry? Optimizers that are not
// blind to the size of gradients tell.
#include "support/catch.hpp"
#include "support/close.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"

#include <string>

namespace colossal::test {
namespace {

Trained trained(Precision precision, const OptimizerConfig& optimizer, LossScaleConfig scale) {
  Config config = tiny_gpt();
  config.train.precision = precision;
  config.train.loss_scale = scale;
  config.optimizer = optimizer;
  const ParallelContext context(config);
  return train(config, context);
}

LossScaleConfig constant(double scale) {
  return {.init = scale, .growth = 1, .backoff = 1};
}

void require_close_weights(const Trained& expected, const Trained& got, double tolerance) {
  REQUIRE(expected.tensors.size() == got.tensors.size());
  for (const auto& [name, tensor] : expected.tensors) {
    if (name.starts_with("model/") && name.ends_with(".weight")) {  // biases start at zero
      require_close(tensor, got.tensors.at(name), tolerance, name);
    }
  }
}

}  // namespace

TEST_CASE("no optimizer learns more from a larger loss scale", "[precision]") {
  OptimizerConfig sgd;
  sgd.type = OptimizerType::sgd;
  sgd.lr = 0.1;
  sgd.momentum = 0.9;
  sgd.weight_decay = 0.1;
  OptimizerConfig lars = sgd;
  lars.type = OptimizerType::lars;
  OptimizerConfig adam;
  adam.type = OptimizerType::adam;
  adam.lr = 1e-2;
  adam.eps = 1e-6;
  adam.weight_decay = 0.1;  // L2: part of the gradient
  for (const OptimizerConfig& optimizer : {sgd, lars, adam}) {
    INFO(yaml_word(optimizer.type));
    const Trained wide = trained(Precision::fp32, optimizer, {});
    const Trained low = trained(Precision::fp16, optimizer, constant(256));
    const Trained high = trained(Precision::fp16, optimizer, constant(4096));
    // adam divides small gradients by their own size, and their rounding with them
    const double tolerance = optimizer.type == OptimizerType::adam ? 3e-2 : 5e-3;
    require_close_weights(low, high, tolerance);
    require_close_weights(wide, high, tolerance);
  }
}

TEST_CASE("moments go on when the loss scale grows", "[precision]") {
  OptimizerConfig adamw;
  adamw.lr = 1e-2;
  adamw.eps = 1e-6;
  const Trained steady = trained(Precision::fp16, adamw, constant(256));
  LossScaleConfig grows = constant(256);
  grows.growth = 4;
  grows.growth_interval = 2;
  grows.max = 65536;
  const Trained growing = trained(Precision::fp16, adamw, grows);
  REQUIRE(growing.reports.back().loss_scale >= 4096);
  require_close_weights(steady, growing, 5e-3);
  for (const auto& [name, tensor] : steady.tensors) {
    if (name.ends_with("exp_avg_sq")) {
      require_close(tensor, growing.tensors.at(name), 3e-2, name);
    }
  }
}

}  // namespace colossal::test
