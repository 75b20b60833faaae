// Where do optimizer states live that fit neither device nor host? Slots of one preallocated file a
// rank.
#pragma once

#include "config/config.hpp"
#include "memory/disk_queue.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace colossal {

/// How the file of a rank is made: parallel.gemini.nvme and whose it is.
struct NvmeOptions {
  std::filesystem::path folder;            ///< made if it does not exist
  int rank = 0;                            ///< in the file's name and in messages
  std::optional<std::int64_t> limit = {};  ///< bytes of the file; unset: the disk's free space
  NvmeBackend backend = NvmeBackend::automatic;
  std::int64_t queue_depth = 32;  ///< requests of 1 MiB under way
  bool direct = true;             ///< past the page cache if the file system allows it
  DiskQueueFactory queue = {};    ///< in place of `backend`, for tests
};

/// Bytes a second of large transfers.
struct NvmeSpeed {
  double read = 0;
  double write = 0;
};

namespace detail {
class NvmeEngine;     // the thread that owns the queue
struct NvmeTransfer;  // one transfer under way
}  // namespace detail

/// A transfer under way: its memory must stay as it is until wait(). The destructor waits if nobody
/// did; an error is then told by the next call on the file.
class [[nodiscard]] NvmePending {
 public:
  NvmePending() noexcept = default;  ///< already complete
  explicit NvmePending(std::shared_ptr<detail::NvmeTransfer> transfer) noexcept;
  NvmePending(NvmePending&&) noexcept = default;
  NvmePending& operator=(NvmePending&& other) noexcept;
  NvmePending(const NvmePending&) = delete;
  NvmePending& operator=(const NvmePending&) = delete;
  ~NvmePending();
  /// Errors: environment "nvme-io", "nvme-checksum".
  void wait();

 private:
  std::shared_ptr<detail::NvmeTransfer> transfer_;
};

/// Slots of fixed sizes in a file that is allocated whole at the start, so that a full disk shows
/// then and not in the middle of a run. The file has no name once it is open: however the process
/// ends, the system removes it. Transfers run in a thread of their own, past the page cache where
/// the file system allows it; their pieces are checked and repeated when short, and what is read
/// must have the checksum (CRC-32C) of what was written. After an error every call throws it: a
/// slot may be lost, and the run must end with the checkpoints that it has. Calls: one thread.
class NvmeFile {
 public:
  /// `slot_bytes`: payload of each slot. Warns if the folder is in memory (tmpfs) or allows no
  /// direct access. Errors: config "nvme-path" (cannot be written), "nvme-space" (too little free,
  /// by how much), "nvme-limit"; environment "nvme-backend" (io_uring was asked for and is not
  /// available).
  NvmeFile(const NvmeOptions& options, std::span<const std::int64_t> slot_bytes);
  ~NvmeFile();
  NvmeFile(const NvmeFile&) = delete;
  NvmeFile& operator=(const NvmeFile&) = delete;

  /// Slots are numbered from 0.
  [[nodiscard]] int num_slots() const noexcept;
  /// Payload of a slot.
  [[nodiscard]] std::int64_t slot_bytes(int slot) const;
  /// Length of the file: payloads, each rounded up to kHostPage.
  [[nodiscard]] std::int64_t file_bytes() const noexcept;
  /// "io_uring" or "pread".
  [[nodiscard]] std::string_view backend() const noexcept;
  /// Whether transfers go past the page cache.
  [[nodiscard]] bool is_direct() const noexcept;

  /// Fills the first slot_bytes(slot) bytes of `into` with what was written last; zeros if nothing
  /// was. Waits for a transfer of the same slot that is under way. `into` and `from`: contiguous,
  /// of host_empty(), large enough, starting at a page. Errors: internal "nvme-slot",
  /// "nvme-buffer".
  NvmePending read(int slot, const at::Tensor& into);
  /// The same in the other direction.
  NvmePending write(int slot, const at::Tensor& from);

  /// Writes and reads up to 32 MiB of the file in transfers as long as `memory` of host_empty(),
  /// which is overwritten, and tells how fast that was. Before the first write() only. Errors:
  /// internal "nvme-slot"; environment "nvme-io".
  [[nodiscard]] NvmeSpeed measure(const at::Tensor& memory);

 private:
  std::unique_ptr<detail::NvmeEngine> engine_;
};

/// "nvme      1.2 GB of optimizer states in FOLDER (io_uring, direct): read 2.1 GB/s, written 0.9
/// GB/s, 1.9 s a step": what each step costs that reads and writes every slot once.
[[nodiscard]] std::string describe(const NvmeFile& file,
                                   const std::filesystem::path& folder,
                                   const NvmeSpeed& speed);

}  // namespace colossal
