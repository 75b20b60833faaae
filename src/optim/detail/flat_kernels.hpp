// Which loops run over flat shards? Plain functions over pointers: no tensor, no thread, no
// configuration.
#pragma once

#include <cstdint>

namespace colossal::detail {

/// Factors of one AdamW update that are equal for a range of elements, computed in double by the
/// caller.
struct AdamwFactors {
  double beta1 = 0;
  double beta2 = 0;
  double grad = 1;        ///< g is multiplied by this first (clipping)
  double shrink = 1;      ///< 1 - lr * weight_decay
  double step = 0;        ///< lr / (1 - beta1^t)
  double correction = 1;  ///< sqrt(v) (v, if eps_inside_sqrt) is multiplied by this: bias
                          ///< correction of the second moment
  double eps = 0;
  bool eps_inside_sqrt = false;
};

/// One pass: m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; p = shrink p - step m / (correction
/// sqrt(v) + eps). Element-wise in the dtype of the arrays; rounding is equal on every instruction
/// set (no fused multiply-add).
void adamw(float* param,
           float* exp_avg,
           float* exp_avg_sq,
           const float* grad,
           std::int64_t count,
           const AdamwFactors&);
void adamw(double* param,
           double* exp_avg,
           double* exp_avg_sq,
           const double* grad,
           std::int64_t count,
           const AdamwFactors&);

/// Sum of squares, accumulated in double in a fixed order.
[[nodiscard]] double sum_of_squares(const float* values, std::int64_t count);
[[nodiscard]] double sum_of_squares(const double* values, std::int64_t count);

}  // namespace colossal::detail
