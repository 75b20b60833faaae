// Which optimizers exist? One line each.
#include "optim/adamw.hpp"
#include "optim/optimizer.hpp"

namespace colossal {

const Registry<Optimizer, const OptimizerConfig&>& optimizers() {
  static const Registry<Optimizer, const OptimizerConfig&> table("optimizer.type",
                                                                 {{"adamw", make_adamw}});
  return table;
}

}  // namespace colossal
