// Which tensors do bulk copies of boxes take as they are?
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace colossal::kernels::cuda {

/// bf16 without gaps, in rows (or one row) of whole packs of 16 bytes.
inline bool is_plain(const at::Tensor& x) {
  constexpr std::int64_t kPackElements = 8;
  return x.scalar_type() == at::kBFloat16 && x.is_contiguous() && x.size(-1) % kPackElements == 0 &&
         reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

}  // namespace colossal::kernels::cuda
