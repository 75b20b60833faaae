// Which thread moves slots between memory and disk, and how does it learn and tell what went wrong?
#pragma once

#include "core/error.hpp"
#include "core/system.hpp"
#include "memory/disk_queue.hpp"

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace colossal::detail {

/// Piece of a transfer: large enough for a disk's full speed, small enough to fill a queue.
inline constexpr std::int64_t kNvmePiece = std::int64_t{1} << 20U;

/// What one slot is and holds. The checksum belongs to the engine's thread.
struct NvmeSlot {
  std::int64_t offset = 0;   ///< in the file
  std::int64_t bytes = 0;    ///< payload
  std::int64_t on_disk = 0;  ///< rounded up to whole pages
  bool written = false;
  std::uint32_t checksum = 0;
};

/// What a transfer and its waiter share with the engine.
struct NvmeShared {
  std::mutex mutex;
  std::condition_variable done;
  std::optional<Error> broken;  ///< the first error of the file
};

/// One transfer. Members up to `memory` are constant; `done` and `error` are guarded by shared.
struct NvmeTransfer {
  std::shared_ptr<NvmeShared> shared;
  int slot = -1;  ///< -1: a measurement, without checksum
  bool write = false;
  std::int64_t offset = 0;
  std::byte* data = nullptr;
  std::int64_t bytes = 0;    ///< payload
  std::int64_t on_disk = 0;  ///< moved
  at::Tensor memory;         ///< keeps the storage alive
  std::int64_t left = 0;     ///< pieces not yet ended; the engine's thread only
  bool done = false;
  std::optional<Error> error;
};

/// Owns file, queue and thread; NvmeFile checks what callers ask for and hands it over.
class NvmeEngine {
 public:
  /// `path`: the file's former name, for messages.
  NvmeEngine(Descriptor file,
             std::unique_ptr<DiskQueue> queue,
             std::vector<NvmeSlot> slots,
             std::string path);
  /// Finishes what is under way.
  ~NvmeEngine();
  NvmeEngine(const NvmeEngine&) = delete;
  NvmeEngine& operator=(const NvmeEngine&) = delete;

  /// Starts a transfer after the last one of its slot. Errors: the file's first error.
  std::shared_ptr<NvmeTransfer> start(NvmeTransfer transfer);

  /// Set before the first transfer, then constant.
  bool direct = false;
  std::int64_t file_bytes = 0;
  bool used = false;  ///< a slot was written

  [[nodiscard]] const std::vector<NvmeSlot>& slots() const noexcept { return slots_; }
  [[nodiscard]] std::string_view backend() const noexcept { return queue_->name(); }

 private:
  using TransferPtr = std::shared_ptr<NvmeTransfer>;
  struct Piece {
    DiskRequest request;
    TransferPtr transfer;
    int idle_tries = 0;  ///< in a row that moved nothing
  };

  void run();
  /// Fills the queue and takes one result.
  void turn();
  /// Waits for work if nothing is under way; false: the engine ends.
  bool take_new();
  void begin(const TransferPtr& transfer);
  void submit();
  void end_piece(const DiskResult& result);
  void give_up_piece(const Piece& piece, const std::string& why);
  /// One piece fewer; the last one ends the transfer.
  void count_down(const TransferPtr& transfer);
  void finish(const TransferPtr& transfer, std::optional<Error> error);
  void fail_all(const Error& error);
  [[nodiscard]] std::optional<Error> checksum_error(const NvmeTransfer& transfer) const;
  [[nodiscard]] std::string place_of(const NvmeTransfer& transfer) const;

  Descriptor file_;
  std::vector<NvmeSlot> slots_;
  std::string path_;
  std::shared_ptr<NvmeShared> shared_ = std::make_shared<NvmeShared>();
  std::unique_ptr<DiskQueue> queue_;  // after the file that it uses
  std::vector<TransferPtr> last_;     // by slot; the caller's thread only
  std::condition_variable to_do_;     // with shared_->mutex: the next two
  std::deque<TransferPtr> new_;
  bool stopping_ = false;
  std::deque<Piece> waiting_;  // the engine's thread only, as the next two
  std::map<std::uint64_t, Piece> under_way_;
  std::uint64_t next_id_ = 0;
  std::thread thread_;
};

}  // namespace colossal::detail
