// Which inputs do the tests of kernels of a GPU share, and what may a GPU differ from a CPU by?
#pragma once

#include "support/close.hpp"
#include "support/gpu.hpp"
#include "unit/nn/nn_helpers.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <string>
#include <vector>

namespace colossal::test {

inline const std::vector<at::ScalarType> kAllTypes = {
    at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};
/// Odd, aligned, longer than a warp, longer than a block.
inline const std::vector<Shape> kGrid = {
    {1, 1}, {3, 5}, {7, 33}, {1, 129}, {5, 64}, {300, 96}, {67, 768}, {9, 1600}, {3, 5000}};

/// A copy of x on the GPU; `shifted`: it starts one element behind a place that is aligned.
inline at::Tensor on_gpu(const at::Tensor& x, bool shifted = false) {
  const at::Tensor place =
      at::empty({x.numel() + 1}, x.options().device(kGpu).requires_grad(false));
  const at::Tensor copy = place.narrow(0, shifted ? 1 : 0, x.numel()).view(x.sizes());
  copy.copy_(x);
  return copy;
}

/// How far a result may be from the CPU's: some roundings of the arithmetic, for 16 bits one step
/// of the format.
inline double step_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 1e-12;
    case at::kFloat:
      return 2e-6;
    case at::kBFloat16:
      return 0x1p-7;
    default:
      return 0x1p-10;
  }
}

/// Every element is within a step of its own size, and a little of the largest one.
inline void require_same(const at::Tensor& cpu, const at::Tensor& gpu, const std::string& what) {
  INFO(what << " of " << c10::toString(cpu.scalar_type()) << ", " << cpu.sizes());
  REQUIRE(gpu.is_cuda());
  REQUIRE(gpu.scalar_type() == cpu.scalar_type());
  REQUIRE(gpu.sizes() == cpu.sizes());
  if (cpu.numel() == 0) {
    return;
  }
  const at::Tensor expected = cpu.detach().to(at::kDouble);
  const at::Tensor size = expected.abs();
  const double slack = cpu.scalar_type() == at::kDouble ? 1e-12 : 4e-6;
  const double largest = std::max(size.max().item<double>(), 1e-3);
  const at::Tensor excess = gpu.detach()
                                .to(at::kCPU, at::kDouble)
                                .sub(expected)
                                .abs()
                                .sub(size.mul(step_of(cpu.scalar_type())))
                                .sub(slack * largest);
  REQUIRE(excess.max().item<double>() <= 0);  // NaN fails
}

}  // namespace colossal::test
