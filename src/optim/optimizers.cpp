// Which optimizers exist? One line each.
#include "optim/adafactor.hpp"
#include "optim/adam.hpp"
#include "optim/lamb.hpp"
#include "optim/lars.hpp"
#include "optim/lion.hpp"
#include "optim/optimizer.hpp"
#include "optim/sgd.hpp"

namespace colossal {

std::vector<std::int64_t> Optimizer::sum_borders(int /*sweep*/, std::int64_t num_params) const {
  std::vector<std::int64_t> borders;
  for (std::int64_t p = 0; p <= num_params; ++p) {
    borders.push_back(2 * p);
  }
  return borders;
}

const Registry<Optimizer, const OptimizerConfig&>& optimizers() {
  static const Registry<Optimizer, const OptimizerConfig&> table("optimizer.type",
                                                                 {{"adamw", make_adamw},
                                                                  {"adam", make_adam},
                                                                  {"sgd", make_sgd},
                                                                  {"lamb", make_lamb},
                                                                  {"lars", make_lars},
                                                                  {"lion", make_lion},
                                                                  {"adafactor", make_adafactor}});
  return table;
}

}  // namespace colossal
