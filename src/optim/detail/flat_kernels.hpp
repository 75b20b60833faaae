// Which loops run over flat shards? Plain functions over pointers: no tensor, no thread, no
// configuration.
#pragma once

#include "optim/detail/half_kernels.hpp"

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

/// Arrays of adam_mixed(): gradients in one of two types, and a working copy or none.
struct MixedArrays {
  float* param = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  const float* grad = nullptr;               ///< null: half_grad
  const std::uint16_t* half_grad = nullptr;  ///< bits of grad_format
  HalfFormat grad_format = HalfFormat::bf16;
  std::uint16_t* working = nullptr;  ///< bits of working_format; null: none
  HalfFormat working_format = HalfFormat::bf16;
  bool streams = false;  ///< the copy goes past the caches: nobody reads it soon
};

/// adam() that reads 16-bit gradients and writes the 16-bit copy of p (rounded to nearest) in the
/// same pass. Equal to widen(), adam() and round_to_nearest() to the last bit.
void adam_mixed(const MixedArrays& arrays, std::int64_t count, const AdamFactors& factors);

/// Factors of one LAMB update that are equal for a range of elements.
struct LambFactors {
  double beta1 = 0;
  double beta2 = 0;
  double grad = 1;        ///< g is multiplied by this first (clipping)
  double first = 1;       ///< m is multiplied by this: bias correction of the first moment
  double correction = 1;  ///< as AdamFactors::correction
  double eps = 0;
  double decay = 0;  ///< weight decay
  double step = 0;   ///< lr times the layer's rate
  bool eps_inside_sqrt = false;
};

/// Squares of a layer, summed in double.
struct Squares {
  double weights = 0;
  double update = 0;  ///< LAMB: of u; LARS: of gradients
};

/// The moments of adam() alone: m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2.
void lamb_moments(float* exp_avg,
                  float* exp_avg_sq,
                  const float* grad,
                  std::int64_t count,
                  const LambFactors& factors);
void lamb_moments(double* exp_avg,
                  double* exp_avg_sq,
                  const double* grad,
                  std::int64_t count,
                  const LambFactors& factors);

/// Squares of p and of u = first m / (correction sqrt(v) + eps) + decay p.
[[nodiscard]] Squares lamb_squares(const float* param,
                                   const float* exp_avg,
                                   const float* exp_avg_sq,
                                   std::int64_t count,
                                   const LambFactors& factors);
[[nodiscard]] Squares lamb_squares(const double* param,
                                   const double* exp_avg,
                                   const double* exp_avg_sq,
                                   std::int64_t count,
                                   const LambFactors& factors);

/// p -= step u, with the u of lamb_squares() to the last bit. Rounding as adam().
void lamb_apply(float* param,
                const float* exp_avg,
                const float* exp_avg_sq,
                std::int64_t count,
                const LambFactors& factors);
void lamb_apply(double* param,
                const double* exp_avg,
                const double* exp_avg_sq,
                std::int64_t count,
                const LambFactors& factors);

/// Factors of one SGD or LARS update that are equal for a range of elements.
struct SgdFactors {
  double momentum = 0;
  double grad = 1;  ///< g is multiplied by this first (clipping)
  double l2 = 0;    ///< then this times p is added to it
  double into = 1;  ///< then the sum is multiplied by this (the layer's rate of LARS)
  double step = 0;  ///< lr
  bool nesterov = false;
};

/// One pass: d = into (grad g + l2 p); b = momentum b + d; p -= step b, or step (d + momentum b)
/// with nesterov; without a buffer (null) p -= step d. Rounding as adam().
void sgd(
    float* param, float* buffer, const float* grad, std::int64_t count, const SgdFactors& factors);
void sgd(double* param,
         double* buffer,
         const double* grad,
         std::int64_t count,
         const SgdFactors& factors);

/// Factors of one Lion update that are equal for a range of elements.
struct LionFactors {
  double beta1 = 0;   ///< share of the momentum in a step
  double beta2 = 0;   ///< decay rate of the momentum
  double grad = 1;    ///< g is multiplied by this first (clipping)
  double shrink = 1;  ///< 1 - lr * weight_decay
  double step = 0;    ///< lr
};

/// One pass: u = sign(b1 m + (1-b1) g); m = b2 m + (1-b2) g; p = shrink p - step u. The sign of 0
/// is 0, that of NaN is NaN. Rounding as adam().
void lion(float* param,
          float* exp_avg,
          const float* grad,
          std::int64_t count,
          const LionFactors& factors);
void lion(double* param,
          double* exp_avg,
          const double* grad,
          std::int64_t count,
          const LionFactors& factors);

/// Sum of squares, accumulated in double in a fixed order.
[[nodiscard]] double sum_of_squares(const float* values, std::int64_t count);
[[nodiscard]] double sum_of_squares(const double* values, std::int64_t count);

}  // namespace colossal::detail
