// What are the formulas of the learning rate? Those of optimizers-and-recipes 5; k counts updates
// from 0, W is the warm-up, m the floor.
#include "optim/curves.hpp"

#include "config/schedule.hpp"
#include "core/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace colossal {
namespace {

/// Half a cosine from 1 (q = 0) to 0 (q = 1).
double half_cosine(double q) {
  return (1 + std::cos(std::numbers::pi * q)) / 2;
}

std::string percent(double share) {
  return fmt::format("{:.4g}% of lr", 100 * share);
}

/// A share q in [0, 1] of the decay becomes a factor in [0, 1]; the floor is added around it.
class Falling : public Curve {
 public:
  Falling(const CurveSpec& spec, double start, std::string name)
      : start_(start),
        end_(static_cast<double>(spec.end())),
        floor_(spec.config.min_lr_ratio),
        name_(std::move(name)) {}

  [[nodiscard]] double rate(std::int64_t k) const final {
    const auto at = static_cast<double>(k);
    if (at >= end_) {
      return floor_;
    }
    const double q = at <= start_ ? 0 : (at - start_) / (end_ - start_);
    return floor_ + (1 - floor_) * factor(q);
  }

  [[nodiscard]] std::string in_words() const override {
    return fmt::format("{} from step {:.6g} to {} at step {:.0f}",
                       name_,
                       start_,
                       floor_ == 0 ? "0" : percent(floor_),
                       end_);
  }

 protected:
  [[nodiscard]] virtual double factor(double q) const = 0;

 private:
  double start_;
  double end_;
  double floor_;
  std::string name_;
};

/// A rate that falls without end, held above the floor.
class Floored : public Curve {
 public:
  explicit Floored(const CurveSpec& spec) : floor_(spec.config.min_lr_ratio) {}

  [[nodiscard]] double rate(std::int64_t k) const final { return std::max(floor_, free_rate(k)); }

 protected:
  [[nodiscard]] virtual double free_rate(std::int64_t k) const = 0;
  [[nodiscard]] std::string floor_words() const {
    return floor_ == 0 ? "" : fmt::format(", not below {}", percent(floor_));
  }

 private:
  double floor_;
};

class Constant : public Curve {
 public:
  explicit Constant(const CurveSpec& /*spec*/) {}
  [[nodiscard]] double rate(std::int64_t /*k*/) const override { return 1; }
  [[nodiscard]] std::string in_words() const override { return "constant"; }
};

class Polynomial : public Falling {
 public:
  Polynomial(const CurveSpec& spec, double power, std::string name)
      : Falling(spec, static_cast<double>(spec.warmup), std::move(name)), power_(power) {}

 protected:
  [[nodiscard]] double factor(double q) const override {
    return power_ == 1 ? 1 - q : std::pow(1 - q, power_);
  }

 private:
  double power_;
};

class Cosine : public Falling {
 public:
  explicit Cosine(const CurveSpec& spec)
      : Falling(spec, static_cast<double>(spec.warmup), "cosine") {}

 protected:
  [[nodiscard]] double factor(double q) const override { return half_cosine(q); }
};

/// Flat for a share of what follows the warm-up, then a cosine.
class FlatCosine : public Falling {
 public:
  explicit FlatCosine(const CurveSpec& spec) : Falling(spec, start(spec), "flat, then cosine") {}

 protected:
  [[nodiscard]] double factor(double q) const override { return half_cosine(q); }

 private:
  static double start(const CurveSpec& spec) {
    const auto warmup = static_cast<double>(spec.warmup);
    return warmup + stable_ratio(spec.config) * (static_cast<double>(spec.end()) - warmup);
  }
};

/// Warm-up, stable, decay: flat for a share of the run that includes the warm-up. Source: Hu et al.
/// 2024 (MiniCPM); the 1 - sqrt shape: Haegele et al. 2024.
class WarmupStableDecay : public Falling {
 public:
  explicit WarmupStableDecay(const CurveSpec& spec)
      : Falling(spec,
                wsd_decay_start(spec.config, spec.total),
                "flat, then " + shape_name(spec.config.decay_shape) + " decay"),
        shape_(spec.config.decay_shape) {
    const double start = wsd_decay_start(spec.config, spec.total);
    check(start >= static_cast<double>(spec.warmup),
          ErrorKind::config,
          "warmup-too-long",
          "the warm-up of {} steps ends after step {:.6g}, where the decay of wsd starts "
          "(scheduler.stable_ratio of {} steps); shorten the warm-up or raise stable_ratio",
          spec.warmup,
          start,
          spec.end());
  }

 protected:
  [[nodiscard]] double factor(double q) const override {
    switch (shape_) {
      case DecayShape::linear:
        return 1 - q;
      case DecayShape::cosine:
        return half_cosine(q);
      case DecayShape::sqrt:
        return 1 - std::sqrt(q);
      case DecayShape::exponential:
        return 2 * std::pow(0.5, q) - 1;
    }
    return 0;
  }

 private:
  static std::string shape_name(DecayShape shape) {
    switch (shape) {
      case DecayShape::linear:
        return "linear";
      case DecayShape::cosine:
        return "cosine";
      case DecayShape::sqrt:
        return "1 - sqrt";
      case DecayShape::exponential:
        return "exponential";
    }
    return "";
  }

  DecayShape shape_;
};

class Step : public Floored {
 public:
  explicit Step(const CurveSpec& spec)
      : Floored(spec), size_(spec.config.step_size.value_or(1)), gamma_(spec.config.gamma) {
    check(size_ > spec.warmup,
          ErrorKind::config,
          "warmup-too-long",
          "the warm-up of {} steps does not end before the first drop (scheduler.step_size {}); "
          "shorten the warm-up",
          spec.warmup,
          size_);
  }

  [[nodiscard]] std::string in_words() const override {
    return fmt::format("times {:.4g} every {} steps{}", gamma_, size_, floor_words());
  }

 protected:
  [[nodiscard]] double free_rate(std::int64_t k) const override {
    return std::pow(gamma_, static_cast<double>(k / size_));
  }

 private:
  std::int64_t size_;
  double gamma_;
};

class MultiStep : public Floored {
 public:
  explicit MultiStep(const CurveSpec& spec)
      : Floored(spec), milestones_(spec.config.milestones), gamma_(spec.config.gamma) {
    const bool ordered =
        std::ranges::adjacent_find(milestones_, std::greater_equal()) == milestones_.end();
    check(ordered && (milestones_.empty() || milestones_.front() > spec.warmup),
          ErrorKind::config,
          "milestones-order",
          "scheduler.milestones [{}] must rise, each above the one before and the first above the "
          "{} steps of warm-up",
          fmt::join(milestones_, ", "),
          spec.warmup);
  }

  [[nodiscard]] std::string in_words() const override {
    return fmt::format(
        "times {:.4g} at steps {}{}", gamma_, fmt::join(milestones_, ", "), floor_words());
  }

 protected:
  [[nodiscard]] double free_rate(std::int64_t k) const override {
    const auto passed = std::ranges::upper_bound(milestones_, k) - milestones_.begin();
    return std::pow(gamma_, static_cast<double>(passed));
  }

 private:
  std::vector<std::int64_t> milestones_;
  double gamma_;
};

/// Source: Vaswani et al. 2017.
class InverseSqrt : public Floored {
 public:
  explicit InverseSqrt(const CurveSpec& spec) : Floored(spec), warmup_(spec.warmup) {
    check(warmup_ > 0,
          ErrorKind::config,
          "warmup-required",
          "scheduler.type inverse_sqrt falls as sqrt(W / k) and needs a warm-up of W >= 1 steps, "
          "it has {}; set scheduler.warmup_steps",
          warmup_);
  }

  [[nodiscard]] std::string in_words() const override {
    return fmt::format("sqrt({} / step){}", warmup_, floor_words());
  }

 protected:
  [[nodiscard]] double free_rate(std::int64_t k) const override {
    return std::sqrt(static_cast<double>(warmup_) / static_cast<double>(k));
  }

 private:
  std::int64_t warmup_;
};

/// Up and down again within the run, the momentum the other way round. Source: Smith and Topin
/// 2018, with the constants and phases of torch.optim.lr_scheduler.OneCycleLR.
class OneCycle : public Curve {
 public:
  explicit OneCycle(const CurveSpec& spec)
      : top_(0.3 * static_cast<double>(spec.total) - 1),
        end_(static_cast<double>(spec.total - 1)) {}

  [[nodiscard]] double rate(std::int64_t k) const override {
    constexpr double kStart = 1.0 / 25;
    constexpr double kEnd = kStart / 1e4;
    return between(k, kStart, 1, kEnd);
  }

  [[nodiscard]] std::optional<double> momentum(std::int64_t k) const override {
    constexpr double kSlow = 0.95;
    constexpr double kFast = 0.85;
    return between(k, kSlow, kFast, kSlow);
  }

  [[nodiscard]] std::string in_words() const override {
    return fmt::format(
        "one cycle from 4% of lr up to lr at step {:.6g} and down to 0.0004% at step {:.0f}; "
        "momentum 0.95 to 0.85 to 0.95",
        top_,
        end_);
  }

 private:
  /// `from` at 0, `top` at the end of the rise, `to` at the end of the run and after.
  [[nodiscard]] double between(std::int64_t k, double from, double top, double to) const {
    const auto at = static_cast<double>(k);
    if (at <= top_) {
      return top + (from - top) * half_cosine(at / top_);
    }
    return at >= end_ ? to : to + (top - to) * half_cosine((at - top_) / (end_ - top_));
  }

  double top_;
  double end_;
};

template <class C>
std::unique_ptr<Curve> make(const CurveSpec& spec) {
  return std::make_unique<C>(spec);
}

std::unique_ptr<Curve> make_linear(const CurveSpec& spec) {
  return std::make_unique<Polynomial>(spec, 1, "linear");
}

std::unique_ptr<Curve> make_polynomial(const CurveSpec& spec) {
  const double power = spec.config.power;
  return std::make_unique<Polynomial>(
      spec, power, fmt::format("polynomial of power {:.4g}", power));
}

}  // namespace

const Registry<Curve, const CurveSpec&>& curves() {
  static const Registry<Curve, const CurveSpec&> table("scheduler.type",
                                                       {{"constant", make<Constant>},
                                                        {"linear", make_linear},
                                                        {"cosine", make<Cosine>},
                                                        {"polynomial", make_polynomial},
                                                        {"step", make<Step>},
                                                        {"multistep", make<MultiStep>},
                                                        {"inverse_sqrt", make<InverseSqrt>},
                                                        {"wsd", make<WarmupStableDecay>},
                                                        {"flat_cosine", make<FlatCosine>},
                                                        {"one_cycle", make<OneCycle>}});
  return table;
}

}  // namespace colossal
