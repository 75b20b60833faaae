// Rows of three matrices beside each other: a thread carries 16 bytes.
#include "nn/kernels/cuda/element.cuh"
#include "nn/kernels/cuda/pack_launch.hpp"

namespace colossal::kernels::cuda {

namespace {

/// `Index`: 32 bits where they are enough, since the division takes most of the time of a thread.
template <class Index>
__global__ void pack_kernel(PackRows a) {
  const auto width = static_cast<Index>(a.widths[0] + a.widths[1] + a.widths[2]);
  const Index count = width * static_cast<Index>(a.rows);
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const Index row = i / width;
    Index column = i - row * width;
    int part = 0;
    while (column >= static_cast<Index>(a.widths[part])) {
      column -= static_cast<Index>(a.widths[part]);
      ++part;
    }
    const auto* const from = static_cast<const uint4*>(a.parts[part]);
    static_cast<uint4*>(a.out)[i] = from[row * static_cast<Index>(a.widths[part]) + column];
  }
}

}  // namespace

cudaError_t launch_pack_rows(const PackRows& args, cudaStream_t stream) {
  constexpr int kThreads = 256;
  constexpr std::int64_t kSmall = std::int64_t{1} << 31U;  // the last step stays below 2^32
  const std::int64_t count = args.rows * (args.widths[0] + args.widths[1] + args.widths[2]);
  if (count == 0) {
    return cudaSuccess;
  }
  const unsigned blocks = grid_of((count + kThreads - 1) / kThreads);
  if (count < kSmall) {
    pack_kernel<std::uint32_t><<<blocks, kThreads, 0, stream>>>(args);
  } else {
    pack_kernel<std::uint64_t><<<blocks, kThreads, 0, stream>>>(args);
  }
  return cudaGetLastError();
}

}  // namespace colossal::kernels::cuda
