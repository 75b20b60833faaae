// Which launch function puts rows of several matrices beside each other?
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace colossal::kernels::cuda {

/// Three matrices of `rows` rows whose widths, in units of 16 bytes, are `widths`; all start at
/// multiples of 16 bytes.
struct PackRows {
  const void* parts[3] = {};
  void* out = nullptr;  ///< rows of parts[0], parts[1] and parts[2]
  std::int64_t rows = 0;
  std::int64_t widths[3] = {};
};

/// Copies all rows.
cudaError_t launch_pack_rows(const PackRows& args, cudaStream_t stream);

}  // namespace colossal::kernels::cuda
