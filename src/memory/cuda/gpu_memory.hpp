// What does the memory layer ask of a GPU? Its counts, pinned pages, and copies beside the
// computation. A build without CUDA has these functions, too, and fails in them.
#pragma once

#include "memory/device_memory.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace colossal::cuda {

/// Memory of a GPU as LibTorch's caching allocator counts it; lives until the process ends. limit()
/// is the size of the card, or the smaller one that was set.
[[nodiscard]] DeviceMemory& gpu_memory(at::Device device);

/// Pins pages that are mapped already, so that copies to and from a GPU run at full speed and
/// without the host. False if the system refuses: copies are only slower then.
[[nodiscard]] bool pin(void* pages, std::int64_t bytes) noexcept;
void unpin(void* pages) noexcept;

/// A copy under way, or none. Its tensors must stay as they are until it is joined or finished.
class Copy {
 public:
  struct Impl;

  Copy() noexcept;
  explicit Copy(std::unique_ptr<Impl> impl) noexcept;
  ~Copy();
  Copy(Copy&&) noexcept;
  Copy& operator=(Copy&&) noexcept;
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  /// What the current stream gets from now on comes after the copy; the host does not wait.
  void join() const;
  /// Waits on the host until the copy is done, and forgets it.
  void finish();

 private:
  std::unique_ptr<Impl> impl_;
};

/// Copies of one direction beside the computation, on a stream of their own. Main thread only.
class CopyStream {
 public:
  explicit CopyStream(at::Device device);
  ~CopyStream();
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  /// Starts to copy, after what the current stream has been given so far and after what `before`
  /// waits for: it is called with the stream of the copies as the current one.
  [[nodiscard]] Copy copy(const at::Tensor& to,
                          const at::Tensor& from,
                          const std::function<void()>& before = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace colossal::cuda
