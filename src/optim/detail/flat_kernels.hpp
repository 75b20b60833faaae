// Which loops run over flat shards? Plain functions over pointers: no tensor, no thread, no
// configuration.
#pragma once

#include <cstdint>

namespace colossal::detail {

/// Factors of one Adam or AdamW update that are equal for a range of elements, computed in double
/// by the caller.
struct AdamFactors {
  double beta1 = 0;
  double beta2 = 0;
  double grad = 1;        ///< g is multiplied by this first (clipping)
  double l2 = 0;          ///< then this times p is added to it (adam's weight decay)
  double shrink = 1;      ///< 1 - lr * weight_decay (adamw's weight decay)
  double step = 0;        ///< lr / (1 - beta1^t)
  double correction = 1;  ///< sqrt(v) (v, if eps_inside_sqrt) is multiplied by this: bias
                          ///< correction of the second moment
  double eps = 0;
  bool eps_inside_sqrt = false;
};

/// One pass: m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; p = shrink p - step m / (correction
/// sqrt(v) + eps). Element-wise in the dtype of the arrays; rounding is equal on every instruction
/// set (no fused multiply-add).
void adam(float* param,
          float* exp_avg,
          float* exp_avg_sq,
          const float* grad,
          std::int64_t count,
          const AdamFactors& factors);
void adam(double* param,
          double* exp_avg,
          double* exp_avg_sq,
          const double* grad,
          std::int64_t count,
          const AdamFactors& factors);

/// Factors of one SGD update that are equal for a range of elements.
struct SgdFactors {
  double momentum = 0;
  double grad = 1;  ///< g is multiplied by this first (clipping)
  double l2 = 0;    ///< then this times p is added to it
  double step = 0;  ///< lr
  bool nesterov = false;
};

/// One pass: d = grad g + l2 p; b = momentum b + d; p -= step b, or step (d + momentum b) with
/// nesterov; without a buffer (null) p -= step d. Rounding as adam().
void sgd(
    float* param, float* buffer, const float* grad, std::int64_t count, const SgdFactors& factors);
void sgd(double* param,
         double* buffer,
         const double* grad,
         std::int64_t count,
         const SgdFactors& factors);

/// Sum of squares, accumulated in double in a fixed order.
[[nodiscard]] double sum_of_squares(const float* values, std::int64_t count);
[[nodiscard]] double sum_of_squares(const double* values, std::int64_t count);

}  // namespace colossal::detail
