// How are pieces of a file read and written while the caller goes on? Three ways: io_uring,
// threads, and what a test puts in their place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

namespace colossal {

/// One piece of a transfer.
struct DiskRequest {
  std::uint64_t id = 0;
  bool write = false;
  std::int64_t offset = 0;  ///< in the file, bytes
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
};

/// How a piece ended.
struct DiskResult {
  std::uint64_t id = 0;     ///< of the request
  std::int64_t result = 0;  ///< bytes moved, perhaps fewer than asked; or a negative errno
};

/// Requests on one file that are under way together. Used by one thread. The file must outlive it.
class DiskQueue {
 public:
  virtual ~DiskQueue() = default;
  /// The word of the backend: "io_uring".
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// Takes a request; false if as many are under way as the queue is deep.
  [[nodiscard]] virtual bool submit(const DiskRequest& request) = 0;
  /// Waits for one request to end; there must be one under way. Order is not kept.
  [[nodiscard]] virtual DiskResult wait() = 0;
};

/// Makes the queue of an open file that is `depth` requests deep.
using DiskQueueFactory = std::function<std::unique_ptr<DiskQueue>(int file, int depth)>;

/// Threads that call pread and pwrite; works everywhere.
[[nodiscard]] std::unique_ptr<DiskQueue> make_thread_queue(int file, int depth);

/// io_uring; null if this build has no liburing, or this kernel or container does not allow it.
[[nodiscard]] std::unique_ptr<DiskQueue> make_uring_queue(int file, int depth);

}  // namespace colossal
