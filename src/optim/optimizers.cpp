// Which optimizers exist? One line each.
#include "optim/adam.hpp"
#include "optim/lamb.hpp"
#include "optim/lars.hpp"
#include "optim/optimizer.hpp"
#include "optim/sgd.hpp"

namespace colossal {

const Registry<Optimizer, const OptimizerConfig&>& optimizers() {
  static const Registry<Optimizer, const OptimizerConfig&> table("optimizer.type",
                                                                 {{"adamw", make_adamw},
                                                                  {"adam", make_adam},
                                                                  {"sgd", make_sgd},
                                                                  {"lamb", make_lamb},
                                                                  {"lars", make_lars}});
  return table;
}

}  // namespace colossal
