// How is a kernel run for its dtype, over the threads of a rank and the widest instruction set?
#pragma once

#include "core/error.hpp"
#include "nn/kernels/element.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

namespace colossal::kernels {

/// A plain function compiled for several instruction sets; the loader picks one. Everything it
/// calls in a loop must be always inlined.
#define COLOSSAL_VECTOR_CLONES [[gnu::target_clones("avx512f", "avx2", "default")]]

/// The same for products of matrices: with fused multiply-add where the set has it. Its files are
/// compiled with -ffp-contract=fast.
#define COLOSSAL_FMA_CLONES [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]

/// Elements below which a part is not worth another thread.
inline constexpr std::int64_t kGrainNumel = 16'384;

/// Runs f(begin, end) on equal static parts of [0, rows), each of at least kGrainNumel elements, on
/// torch's own thread pool.
template <class F>
void parallel_rows(std::int64_t rows, std::int64_t row_numel, const F& f) {
  const std::int64_t grain =
      std::max<std::int64_t>(1, kGrainNumel / std::max<std::int64_t>(1, row_numel));
  at::parallel_for(0, rows, grain, f);
}

/// Calls f(S{}) for the element type S of x. Errors: internal "kernel-dtype" unless fp64, fp32,
/// bf16 or fp16.
template <class F>
void with_floating(const at::Tensor& x, const F& f) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return f(float{});
    case at::kDouble:
      return f(double{});
    case at::kBFloat16:
      return f(c10::BFloat16{});
    case at::kHalf:
      return f(c10::Half{});
    default:
      fail(ErrorKind::internal,
           "kernel-dtype",
           "no kernel for tensors of {}",
           c10::toString(x.scalar_type()));
  }
}

/// The same for kernels that know no 16 bits: their callers widen.
template <class F>
void with_wide(const at::Tensor& x, const F& f) {
  if (x.scalar_type() == at::kFloat) {
    f(float{});
  } else {
    check(x.scalar_type() == at::kDouble,
          ErrorKind::internal,
          "kernel-dtype",
          "no kernel for tensors of {}",
          c10::toString(x.scalar_type()));
    f(double{});
  }
}

}  // namespace colossal::kernels
