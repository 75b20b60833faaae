// How is the file of a rank made and used? Everything that can be wrong shows while it is made.
#include "memory/nvme_file.hpp"

#include "core/fault.hpp"
#include "core/log.hpp"
#include "memory/detail/failing_disk.hpp"
#include "memory/detail/nvme_engine.hpp"
#include "memory/gauge.hpp"
#include "memory/host_memory.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace colossal {
namespace {

namespace fs = std::filesystem;
using detail::NvmeSlot;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMeasuredBytes = std::int64_t{32} << 20U;
constexpr double kGiga = 1e9;
constexpr double kMega = 1e6;

std::int64_t to_pages(std::int64_t bytes) {
  return (bytes + kHostPage - 1) / kHostPage * kHostPage;
}

[[noreturn]] void bad_path(const fs::path& path, const std::string& cause) {
  fail(ErrorKind::config,
       "nvme-path",
       "parallel.gemini.nvme.path: cannot write {}: {}\n  fix   name a folder on a local disk that "
       "is yours",
       path.string(),
       cause);
}

std::vector<NvmeSlot> lay_out(std::span<const std::int64_t> slot_bytes) {
  std::vector<NvmeSlot> slots;
  std::int64_t offset = 0;
  for (const std::int64_t bytes : slot_bytes) {
    slots.push_back({.offset = offset, .bytes = bytes, .on_disk = to_pages(bytes)});
    offset += slots.back().on_disk;
  }
  return slots;
}

/// Errors: "nvme-space" if the file system says that it has less free than needed; one that does
/// not tell is judged by the allocation.
void check_space(const fs::path& folder, std::int64_t needed) {
  struct statfs volume{};
  if (::statfs(folder.c_str(), &volume) != 0) {
    return;
  }
  const std::int64_t free = static_cast<std::int64_t>(volume.f_bavail) * volume.f_bsize;
  check(free >= needed,
        ErrorKind::config,
        "nvme-space",
        "parallel.gemini.nvme.path: the optimizer states of this rank need {} bytes and {} has {} "
        "free: {} are missing\n  fix   free space, name another disk, or lower "
        "parallel.gemini.nvme.fraction",
        needed,
        folder.string(),
        free,
        needed - free);
  if (volume.f_type == TMPFS_MAGIC) {
    log::warn("[nvme] {} is a tmpfs: what is written there stays in host memory [nvme-tmpfs]",
              folder.string());
  }
}

/// Gives the file its blocks now. Errors: "nvme-space".
void allocate(int file, const fs::path& path, std::int64_t bytes) {
  // Where a file system cannot do it, the library writes single bytes: direct access refuses those.
  const int flags = ::fcntl(file, F_GETFL);
  ::fcntl(file, F_SETFL, flags & ~O_DIRECT);
  int error = EINTR;
  while (error == EINTR) {
    error = ::posix_fallocate(file, 0, bytes);
  }
  ::fcntl(file, F_SETFL, flags);
  if (error == 0) {
    return;
  }
  check(error == ENOSPC || error == EFBIG || error == EDQUOT,
        ErrorKind::config,
        "nvme-path",
        "parallel.gemini.nvme.path: {} cannot be allocated: {}\n  fix   name a folder on a local "
        "disk",
        path.string(),
        std::strerror(error));
  fail(ErrorKind::config,
       "nvme-space",
       "parallel.gemini.nvme.path: the optimizer states of this rank need {} bytes and {} cannot "
       "have them: {}\n  fix   free space, raise the limit or quota, name another disk, or lower "
       "parallel.gemini.nvme.fraction",
       bytes,
       path.string(),
       std::strerror(error));
}

struct Opened {
  Descriptor file;
  bool direct = false;
};

/// A new file that only this process can reach, past the page cache if that is wanted and possible.
Opened open_file(const fs::path& path, bool direct) {
  constexpr int kFlags = O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC;
  constexpr mode_t kOwner = 0600;
  ::unlink(path.c_str());  // of a process of the same number that was killed in between
  Opened opened{Descriptor(::open(path.c_str(), kFlags | (direct ? O_DIRECT : 0), kOwner)), direct};
  if (opened.file.get() < 0 && errno == EINVAL) {
    ::unlink(path.c_str());  // some file systems refuse only after they made it
    opened = {Descriptor(::open(path.c_str(), kFlags, kOwner)), false};
  }
  const int error = errno;
  if (opened.file.get() < 0) {
    bad_path(path, std::strerror(error));
  }
  ::unlink(path.c_str());
  return opened;
}

std::unique_ptr<DiskQueue> make_queue(const NvmeOptions& options, int file) {
  const auto depth = static_cast<int>(options.queue_depth);
  if (options.queue) {
    return options.queue(file, depth);
  }
  std::unique_ptr<DiskQueue> queue =
      options.backend == NvmeBackend::pread ? nullptr : make_uring_queue(file, depth);
  check(queue != nullptr || options.backend != NvmeBackend::io_uring,
        ErrorKind::environment,
        "nvme-backend",
        "parallel.gemini.nvme.backend: io_uring is not available: this build, kernel or container "
        "does not allow it\n  fix   backend: pread, or auto");
  queue = queue != nullptr ? std::move(queue) : make_thread_queue(file, depth);
  const std::int64_t limit = fault::nvme_limit(options.rank);
  return limit == fault::kNoLimit ? std::move(queue)
                                  : std::make_unique<detail::FailingDisk>(std::move(queue), limit);
}

void check_limit(const NvmeOptions& options, std::int64_t bytes) {
  check(bytes <= options.limit.value_or(bytes),
        ErrorKind::config,
        "nvme-limit",
        "parallel.gemini.nvme.limit is {} bytes and the optimizer states of rank {} need {}: {} "
        "more\n  fix   raise it, or lower parallel.gemini.nvme.fraction",
        options.limit.value_or(0),
        options.rank,
        bytes,
        bytes - options.limit.value_or(0));
}

std::unique_ptr<detail::NvmeEngine> open_engine(const NvmeOptions& options,
                                                std::vector<NvmeSlot> slots,
                                                std::int64_t bytes) {
  std::error_code error;
  fs::create_directories(options.folder, error);
  if (error) {
    bad_path(options.folder, error.message());
  }
  const fs::path path =
      options.folder / fmt::format("colossal-{}-rank-{:04}.states", ::getpid(), options.rank);
  Opened opened = open_file(path, options.direct);
  check_space(options.folder, bytes);
  if (bytes > 0) {
    allocate(opened.file.get(), path, bytes);
  }
  if (!opened.direct) {
    log::warn(
        "[nvme] {} allows no direct access: transfers go through the page cache, which takes "
        "host memory [nvme-buffered]",
        options.folder.string());
  }
  const int file = opened.file.get();
  auto engine = std::make_unique<detail::NvmeEngine>(
      std::move(opened.file),
      blaming("parallel.gemini.nvme.backend", [&] { return make_queue(options, file); }),
      std::move(slots),
      path.string());
  engine->direct = opened.direct;
  if (gauge(MemoryKind::nvme).try_add(bytes)) {
    engine->file_bytes = bytes;
  }
  return engine;
}

std::unique_ptr<detail::NvmeEngine> make_engine(const NvmeOptions& options,
                                                std::span<const std::int64_t> slot_bytes) {
  std::vector<NvmeSlot> slots = lay_out(slot_bytes);
  const std::int64_t bytes = slots.empty() ? 0 : slots.back().offset + slots.back().on_disk;
  blaming("parallel.gemini.nvme.limit", [&] { check_limit(options, bytes); });
  return blaming("parallel.gemini.nvme.path",
                 [&] { return open_engine(options, std::move(slots), bytes); });
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The transfer of a slot from or to `memory`. Errors: internal "nvme-buffer".
detail::NvmeTransfer transfer_of(int slot, const NvmeSlot& where, const at::Tensor& memory) {
  auto* data = static_cast<std::byte*>(memory.data_ptr());
  const auto* storage = static_cast<const std::byte*>(memory.storage().data());
  const auto room = static_cast<std::int64_t>(memory.storage().nbytes()) - (data - storage);
  check(memory.is_contiguous() && reinterpret_cast<std::uintptr_t>(data) % kHostPage == 0 &&
            static_cast<std::int64_t>(memory.nbytes()) >= where.bytes && room >= where.on_disk,
        ErrorKind::internal,
        "nvme-buffer",
        "slot {} of {} bytes cannot use a tensor of {} bytes with {} bytes of storage at {}",
        slot,
        where.bytes,
        memory.nbytes(),
        room,
        static_cast<const void*>(data));
  detail::NvmeTransfer transfer;
  transfer.slot = slot;
  transfer.offset = where.offset;
  transfer.data = data;
  transfer.bytes = where.bytes;
  transfer.on_disk = where.on_disk;
  transfer.memory = memory;
  return transfer;
}

}  // namespace

NvmePending::NvmePending(std::shared_ptr<detail::NvmeTransfer> transfer) noexcept
    : transfer_(std::move(transfer)) {}

NvmePending& NvmePending::operator=(NvmePending&& other) noexcept {
  const NvmePending old(std::exchange(transfer_, std::exchange(other.transfer_, nullptr)));
  return *this;
}

NvmePending::~NvmePending() {
  if (transfer_ != nullptr) {
    std::unique_lock lock(transfer_->shared->mutex);
    transfer_->shared->done.wait(lock, [this] { return transfer_->done; });
  }
}

void NvmePending::wait() {
  const std::shared_ptr<detail::NvmeTransfer> transfer = std::exchange(transfer_, nullptr);
  if (transfer == nullptr) {
    return;
  }
  std::unique_lock lock(transfer->shared->mutex);
  transfer->shared->done.wait(lock, [&] { return transfer->done; });
  if (transfer->error) {
    throw Error(*transfer->error);
  }
}

NvmeFile::NvmeFile(const NvmeOptions& options, std::span<const std::int64_t> slot_bytes)
    : engine_(make_engine(options, slot_bytes)) {}

NvmeFile::~NvmeFile() = default;

int NvmeFile::num_slots() const noexcept {
  return static_cast<int>(engine_->slots().size());
}

std::int64_t NvmeFile::slot_bytes(int slot) const {
  check(slot >= 0 && slot < num_slots(),
        ErrorKind::internal,
        "nvme-slot",
        "slot {} of an NVMe file with {}",
        slot,
        num_slots());
  return engine_->slots()[static_cast<std::size_t>(slot)].bytes;
}

std::int64_t NvmeFile::file_bytes() const noexcept {
  return engine_->file_bytes;
}

std::string_view NvmeFile::backend() const noexcept {
  return engine_->backend();
}

bool NvmeFile::is_direct() const noexcept {
  return engine_->direct;
}

NvmePending NvmeFile::read(int slot, const at::Tensor& into) {
  static_cast<void>(slot_bytes(slot));
  return NvmePending(
      engine_->start(transfer_of(slot, engine_->slots()[static_cast<std::size_t>(slot)], into)));
}

NvmePending NvmeFile::write(int slot, const at::Tensor& from) {
  static_cast<void>(slot_bytes(slot));
  detail::NvmeTransfer transfer =
      transfer_of(slot, engine_->slots()[static_cast<std::size_t>(slot)], from);
  transfer.write = true;
  engine_->used = true;
  return NvmePending(engine_->start(std::move(transfer)));
}

NvmeSpeed NvmeFile::measure(const at::Tensor& memory) {
  check(!engine_->used,
        ErrorKind::internal,
        "nvme-slot",
        "measuring would overwrite the slots of {} bytes that were written",
        file_bytes());
  const std::int64_t most = std::min(kMeasuredBytes, file_bytes());
  const std::int64_t pages =
      (static_cast<std::int64_t>(memory.nbytes()) + kHostPage - 1) / kHostPage;
  const std::int64_t piece = std::min(pages * kHostPage, most);
  if (piece == 0) {
    return {};
  }
  std::memset(memory.data_ptr(), 1, memory.nbytes());
  const auto rate = [&](bool write) {
    const Clock::time_point start = Clock::now();
    std::int64_t moved = 0;
    for (; moved + piece <= most; moved += piece) {
      const NvmeSlot place{.offset = moved, .bytes = 0, .on_disk = piece};
      detail::NvmeTransfer transfer = transfer_of(-1, place, memory);
      transfer.bytes = piece;
      transfer.write = write;
      NvmePending(engine_->start(std::move(transfer))).wait();
    }
    return static_cast<double>(moved) / seconds_since(start);
  };
  const double written = rate(true);
  return {.read = rate(false), .write = written};
}

std::string describe(const NvmeFile& file, const fs::path& folder, const NvmeSpeed& speed) {
  const auto bytes = static_cast<double>(file.file_bytes());
  const double seconds = bytes > 0 ? bytes / speed.read + bytes / speed.write : 0;
  const bool small = bytes < kGiga;
  return fmt::format(
      "nvme      {:.2f} {} of optimizer states a rank in {} ({}, {}): read {:.2f} GB/s, written "
      "{:.2f} GB/s, about {:.3g} s a step",
      bytes / (small ? kMega : kGiga),
      small ? "MB" : "GB",
      folder.string(),
      file.backend(),
      file.is_direct() ? "direct" : "buffered",
      speed.read / kGiga,
      speed.write / kGiga,
      seconds);
}

}  // namespace colossal
