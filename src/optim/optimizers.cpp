// Which optimizers exist? One line each.
#include "optim/adam.hpp"
#include "optim/optimizer.hpp"
#include "optim/sgd.hpp"

namespace colossal {

const Registry<Optimizer, const OptimizerConfig&>& optimizers() {
  static const Registry<Optimizer, const OptimizerConfig&> table(
      "optimizer.type", {{"adamw", make_adamw}, {"adam", make_adam}, {"sgd", make_sgd}});
  return table;
}

}  // namespace colossal
