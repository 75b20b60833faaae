// Where do tensors live that are not on the device? Page-aligned host memory, counted on its own.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace colossal {

/// Alignment and granularity of host_empty(): direct disk access needs both.
inline constexpr std::int64_t kHostPage = 4096;

/// Whether a GPU copies these pages: pinned ones are copied at full speed and beside the host.
enum class HostPages : std::uint8_t { plain, pinned };

/// A flat tensor of zeros in page-aligned host memory. It counts as MemoryKind::host, with its
/// length rounded up to kHostPage, and not as device memory; its storage may be read and written up
/// to that length. Given back to the system with its last view. Where the system refuses to pin,
/// pages are plain. Errors: memory "host-memory" if the limit of the host's gauge or the system
/// refuses.
[[nodiscard]] at::Tensor host_empty(std::int64_t numel,
                                    at::ScalarType dtype,
                                    HostPages pages = HostPages::plain);

}  // namespace colossal
