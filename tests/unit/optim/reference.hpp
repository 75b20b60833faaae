// What do the update equations give? Written once more, element by element in double.
#pragma once

#include "optim/optimizer.hpp"

#include <ATen/core/Tensor.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace colossal::test {

/// One parameter trained by the equations of optimizers-and-recipes 1, in no clever way.
class Reference {
 public:
  Reference(OptimizerConfig config, const ParamGroup& group, const at::Tensor& start)
      : config_(std::move(config)), group_(group), w(numbers(start)) {
    m.resize(w.size());
    v.resize(w.size());
  }

  static std::vector<double> numbers(const at::Tensor& tensor) {
    const at::Tensor wide = tensor.to(at::kDouble).contiguous();
    const auto* const begin = wide.const_data_ptr<double>();
    return {begin, begin + wide.numel()};
  }

  void step(const at::Tensor& grad, const StepInfo& info) {
    std::vector<double> g = numbers(grad);
    for (double& value : g) {
      value *= info.grad_factor;
    }
    const double lr = info.lr * group_.lr_scale;
    switch (config_.type) {
      case OptimizerType::adamw:
      case OptimizerType::adam:
        return adam(g, lr, info.step + 1);
      case OptimizerType::lamb:
        return lamb(g, lr, info.step + 1);
      case OptimizerType::sgd:
        return sgd(g, lr);
      case OptimizerType::lars:
        return lars(g, lr);
      case OptimizerType::lion:
        return lion(g, lr);
      case OptimizerType::adafactor:
        break;  // sees matrices: written again in adafactor_test.cpp
    }
  }

 private:
  OptimizerConfig config_;
  ParamGroup group_;

 public:
  std::vector<double> w, m, v;  ///< weights; first moment or momentum buffer; second moment

 private:
  static double norm(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) {
      sum += value * value;
    }
    return std::sqrt(sum);
  }

  void moments(std::size_t i, double g) {
    m[i] = config_.betas[0] * m[i] + (1 - config_.betas[0]) * g;
    v[i] = config_.betas[1] * v[i] + (1 - config_.betas[1]) * g * g;
  }

  [[nodiscard]] double direction(std::size_t i, double c1, double c2) const {
    const double eps = *config_.eps;
    const double size =
        config_.eps_inside_sqrt ? std::sqrt(v[i] / c2 + eps) : std::sqrt(v[i] / c2) + eps;
    return m[i] / c1 / size;
  }

  void adam(const std::vector<double>& g, double lr, std::int64_t t) {
    const bool l2 = config_.type == OptimizerType::adam;
    const double c1 = 1 - std::pow(config_.betas[0], t);
    const double c2 = 1 - std::pow(config_.betas[1], t);
    for (std::size_t i = 0; i < g.size(); ++i) {
      moments(i, g[i] + (l2 ? group_.weight_decay * w[i] : 0));
      const double decay = l2 ? 0 : group_.weight_decay * w[i];
      w[i] -= lr * (direction(i, c1, c2) + decay);
    }
  }

  void lamb(const std::vector<double>& g, double lr, std::int64_t t) {
    const double c1 = 1 - std::pow(config_.betas[0], t);
    const double c2 = 1 - std::pow(config_.betas[1], t);
    const bool in_moments = config_.bias_correction == BiasCorrection::moments;
    std::vector<double> u;
    for (std::size_t i = 0; i < g.size(); ++i) {
      moments(i, g[i]);
      u.push_back(direction(i, in_moments ? c1 : 1, in_moments ? c2 : 1) +
                  group_.weight_decay * w[i]);
    }
    double r = norm(w) > 0 && norm(u) > 0 ? norm(w) / norm(u) : 1;
    r = config_.trust_clip ? std::min(r, *config_.trust_clip) : r;
    r = group_.adapt ? r : 1;
    lr *= config_.bias_correction == BiasCorrection::lr ? std::sqrt(c2) / c1 : 1;
    for (std::size_t i = 0; i < g.size(); ++i) {
      w[i] -= lr * r * u[i];
    }
  }

  void sgd(const std::vector<double>& g, double lr) {
    for (std::size_t i = 0; i < g.size(); ++i) {
      const double d = g[i] + group_.weight_decay * w[i];
      m[i] = config_.momentum * m[i] + d;
      w[i] -= lr * (config_.nesterov ? d + config_.momentum * m[i] : m[i]);
    }
  }

  void lion(const std::vector<double>& g, double lr) {
    for (std::size_t i = 0; i < g.size(); ++i) {
      const double mixed = config_.betas[0] * m[i] + (1 - config_.betas[0]) * g[i];
      const double sign = mixed > 0 ? 1 : mixed < 0 ? -1 : 0;
      m[i] = config_.betas[1] * m[i] + (1 - config_.betas[1]) * g[i];
      w[i] -= lr * (sign + group_.weight_decay * w[i]);
    }
  }

  void lars(const std::vector<double>& g, double lr) {
    const double decay = group_.adapt ? group_.weight_decay : 0;
    double r = 1;
    if (group_.adapt && norm(w) > 0 && norm(g) > 0) {
      r = config_.trust_coefficient * norm(w) / (norm(g) + decay * norm(w) + *config_.eps);
      r = config_.trust_clip ? std::min(r, *config_.trust_clip) : r;
    }
    for (std::size_t i = 0; i < g.size(); ++i) {
      const double d = g[i] + decay * w[i];
      switch (config_.momentum_mode) {
        case MomentumMode::scaled:
          move(i, lr * r * d, 1);
          break;
        case MomentumMode::unscaled:
          move(i, d, lr * r);
          break;
        case MomentumMode::larc:
          move(i, r * d, lr);
          break;
      }
    }
  }

  void move(std::size_t i, double enters, double rate) {
    m[i] = config_.momentum * m[i] + enters;
    w[i] -= rate * (config_.nesterov ? enters + config_.momentum * m[i] : m[i]);
  }
};

}  // namespace colossal::test
