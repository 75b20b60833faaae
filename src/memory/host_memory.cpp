// How is host memory taken? One anonymous mapping a tensor: exact, aligned, and gone when freed.
#include "memory/host_memory.hpp"

#include "core/error.hpp"
#include "core/log.hpp"
#include "memory/cuda/gpu_memory.hpp"
#include "memory/gauge.hpp"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>

namespace colossal {
namespace {

void* map_pages(std::int64_t bytes) {
  MemoryGauge& host = gauge(MemoryKind::host);
  check(host.try_add(bytes),
        ErrorKind::memory,
        "host-memory",
        "{} bytes of host memory were asked for; {} of the {} bytes of "
        "parallel.gemini.host_memory are in use\n  fix   raise it, keep more on the device "
        "(smaller offload fractions, train.activation_checkpoint.offload: none), or more on disk "
        "(parallel.gemini.nvme)",
        bytes,
        host.use().current,
        host.limit().value_or(0));
  void* pages = mmap(nullptr,
                     static_cast<std::size_t>(bytes),
                     PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS,
                     -1,
                     0);
  if (pages == MAP_FAILED) {
    const int reason = errno;
    host.remove(bytes);
    fail(ErrorKind::memory,
         "host-memory",
         "the system gives no {} bytes of host memory ({}); {} bytes are in use\n  fix   keep less "
         "on the host, or start fewer ranks here",
         bytes,
         std::strerror(reason),
         host.use().current);
  }
  return pages;
}

}  // namespace

at::Tensor host_empty(std::int64_t numel, at::ScalarType dtype, HostPages pages) {
  const auto item_bytes = static_cast<std::int64_t>(at::elementSize(dtype));
  const std::int64_t bytes =
      std::max<std::int64_t>(1, (numel * item_bytes + kHostPage - 1) / kHostPage) * kHostPage;
  void* const mapping = map_pages(bytes);
  const bool pinned = pages == HostPages::pinned && cuda::pin(mapping, bytes);
  if (pages == HostPages::pinned && !pinned) {
    log::warn("[memory] the system pins no {} bytes of host memory: copies to the GPU are slower",
              bytes);
  }
  if (pinned) {
    (void)gauge(MemoryKind::pinned).try_add(bytes);  // which has no limit
  }
  const auto unmap = [bytes, pinned](void* mapped) {
    if (pinned) {
      cuda::unpin(mapped);
      gauge(MemoryKind::pinned).remove(bytes);
    }
    munmap(mapped, static_cast<std::size_t>(bytes));
    gauge(MemoryKind::host).remove(bytes);
  };
  return at::from_blob(mapping, {bytes / item_bytes}, unmap, at::TensorOptions(dtype))
      .narrow(0, 0, numel);
}

}  // namespace colossal
