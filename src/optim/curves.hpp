// Which shapes can a learning rate have after its warm-up? One small pure function per word of
// scheduler.type.
#pragma once

#include "config/config.hpp"
#include "core/registry.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace colossal {

/// What a curve is made of. Counts are optimizer steps of the whole run.
struct CurveSpec {
  const SchedulerConfig& config;
  std::int64_t warmup = 0;  ///< W: the curve starts at update k = W
  std::int64_t total = 0;   ///< T: updates of the run
  /// End of the decay: W + decay_steps, by default T.
  [[nodiscard]] std::int64_t end() const {
    return config.decay_steps ? warmup + *config.decay_steps : total;
  }
};

/// A learning rate after its warm-up, as a share of the peak: a pure function of the update number.
class Curve {
 public:
  virtual ~Curve() = default;
  /// Share in [0, 1] at update k >= W; defined beyond the end of the run.
  [[nodiscard]] virtual double rate(std::int64_t k) const = 0;
  /// Momentum (sgd) or first beta (adam, adamw) of update k, if the curve has one.
  [[nodiscard]] virtual std::optional<double> momentum(std::int64_t /*k*/) const { return {}; }
  /// "cosine to 10% of lr at step 100".
  [[nodiscard]] virtual std::string in_words() const = 0;
};

/// Table by scheduler.type: constant, linear, cosine, polynomial, step, multistep, inverse_sqrt,
/// wsd, flat_cosine, one_cycle. Errors of the factories: config "warmup-required" (inverse_sqrt
/// without a warm-up step), "warmup-too-long" (wsd and step whose fall starts before the warm-up
/// ends), "milestones-order".
[[nodiscard]] const Registry<Curve, const CurveSpec&>& curves();

}  // namespace colossal
