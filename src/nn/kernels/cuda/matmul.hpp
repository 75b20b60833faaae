// How does cuBLASLt multiply matrices of 16 bits, and what does it do with a result before it is
// written?
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace colossal::kernels::cuda {

/// What happens to a product besides.
enum class Epilogue : std::uint8_t {
  none,
  bias,           ///< + bias_n
  gelu,           ///< + bias_n, kept in aux_mn, then gelu_tanh
  gelu_gradient,  ///< times the slope of gelu_tanh at aux_mn
};

/// The arrays an epilogue reads or writes; others stay undefined.
struct EpilogueArrays {
  at::Tensor bias;              ///< dtype of the result
  at::Tensor aux_mn;            ///< dtype and shape of the result
  at::Tensor residual_mn = {};  ///< added before the epilogue, any; dtype and shape of the result
};

/// a_mk b_kn with sums in fp32, both of one dtype of 16 bits, each contiguous or the transpose of a
/// contiguous matrix, all sizes multiples of 8 and starting at multiples of 16 bytes. Undefined
/// where the library has no kernel for it. The kernel of a shape is chosen by its heuristics, or,
/// unless deterministic algorithms are asked for (ATen's global switch), by timing the best few at
/// the first call: the device is waited for then. Errors: internal "cuda-launch" naming the call.
[[nodiscard]] at::Tensor matmul(const at::Tensor& a_mk,
                                const at::Tensor& b_kn,
                                Epilogue epilogue = Epilogue::none,
                                const EpilogueArrays& arrays = {});

/// out_mn = a_mk b_kn, or, if `adds`, out_mn += a_mk b_kn, added in fp32 and rounded once. `out_mn`
/// is contiguous, of the dtype of a or fp32; the rest as above. False, with out_mn as it was, where
/// the library has no kernel for it.
[[nodiscard]] bool matmul_into(const at::Tensor& out_mn,
                               const at::Tensor& a_mk,
                               const at::Tensor& b_kn,
                               bool adds);

}  // namespace colossal::kernels::cuda
