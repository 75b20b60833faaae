// How are many arrays made into few launches?
#include "optim/detail/cuda/squares.hpp"

#include "core/error.hpp"
#include "optim/detail/cuda/squares_launch.hpp"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>

namespace colossal::detail::cuda {

namespace {

Kind kind_of(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) {
    return Kind::bf16;
  }
  return dtype == at::kHalf ? Kind::fp16 : Kind::wide;
}

/// `sums`: of these parts.
void run(std::span<const at::Tensor> parts, double* sums, const at::TensorOptions& options) {
  SquaresBatch batch;
  batch.kind = kind_of(parts.front().scalar_type());
  batch.fp64 = parts.front().scalar_type() == at::kDouble;
  batch.num_parts = static_cast<int>(parts.size());
  for (int i = 0; i < batch.num_parts; ++i) {
    const at::Tensor& part = parts[static_cast<std::size_t>(i)];
    batch.parts[i] = {part.const_data_ptr(), part.numel()};
    const std::int64_t blocks = (part.numel() + kSquaresBlock - 1) / kSquaresBlock;
    batch.first_block[i + 1] = batch.first_block[i] + static_cast<unsigned>(blocks);
  }
  const at::Tensor partial =
      at::empty({static_cast<std::int64_t>(batch.first_block[batch.num_parts])}, options);
  batch.partial = partial.mutable_data_ptr<double>();
  batch.sums = sums;
  const cudaError_t status = launch_squares_of(batch, c10::cuda::getCurrentCUDAStream().stream());
  check(
      status == cudaSuccess,
      ErrorKind::internal,
      "cuda-launch",
      "the squares of {} gradients could not be summed: {}; the device may have failed before, or "
      "the binary was built for another one",
      batch.num_parts,
      cudaGetErrorString(status));
}

}  // namespace

at::Tensor squares_of(std::span<const at::Tensor> parts) {
  const at::TensorOptions options = parts.front().options().dtype(at::kDouble);
  at::Tensor sums = at::empty({std::ssize(parts)}, options);
  auto* const out = sums.mutable_data_ptr<double>();
  for (std::size_t first = 0; first < parts.size(); first += kSquaresParts) {
    const std::size_t count = std::min<std::size_t>(kSquaresParts, parts.size() - first);
    run(parts.subspan(first, count), out + first, options);
  }
  return sums;
}

}  // namespace colossal::detail::cuda
