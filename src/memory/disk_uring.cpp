// How is a disk kept busy by one thread? Linux's io_uring, where the build and the kernel have it.
#include "memory/disk_queue.hpp"

#ifdef COLOSSAL_URING
#include "core/error.hpp"

#include <cerrno>
#include <cstring>
#include <liburing.h>
#include <utility>
#endif

namespace colossal {

#ifdef COLOSSAL_URING
namespace {

class UringQueue final : public DiskQueue {
 public:
  /// `ring` is initialised and becomes this object's.
  UringQueue(const io_uring& ring, int depth) : ring_(ring), depth_(depth) {}
  ~UringQueue() override { io_uring_queue_exit(&ring_); }
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;

  [[nodiscard]] std::string_view name() const noexcept override { return "io_uring"; }

  [[nodiscard]] bool submit(const DiskRequest& request) override {
    io_uring_sqe* entry = under_way_ == depth_ ? nullptr : io_uring_get_sqe(&ring_);
    if (entry == nullptr) {
      return false;
    }
    const auto bytes = static_cast<unsigned>(request.bytes);
    const auto offset = static_cast<std::uint64_t>(request.offset);
    if (request.write) {
      io_uring_prep_write(entry, kFirstFile, request.data, bytes, offset);
    } else {
      io_uring_prep_read(entry, kFirstFile, request.data, bytes, offset);
    }
    io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data64(entry, request.id);
    ++under_way_;
    return true;
  }

  [[nodiscard]] DiskResult wait() override {
    io_uring_cqe* entry = nullptr;
    // Requests go to the kernel here, all that were taken at once. Interrupted or short of
    // resources, it is asked again: one of ours will end.
    while (io_uring_peek_cqe(&ring_, &entry) != 0) {
      const int taken = io_uring_submit_and_wait(&ring_, 1);
      check(taken >= 0 || taken == -EINTR || taken == -EAGAIN || taken == -EBUSY,
            ErrorKind::environment,
            "nvme-io",
            "io_uring gives up: {}\n  fix   parallel.gemini.nvme.backend: pread",
            std::strerror(-taken));
    }
    static_cast<void>(io_uring_submit(&ring_));
    const DiskResult result{io_uring_cqe_get_data64(entry), entry->res};
    io_uring_cqe_seen(&ring_, entry);
    --under_way_;
    return result;
  }

 private:
  static constexpr int kFirstFile = 0;  // index of the registered file

  io_uring ring_;
  int depth_;
  int under_way_ = 0;
};

/// Whether the kernel knows what is asked of it: reads and writes came with Linux 5.6.
bool can_transfer(io_uring& ring) {
  io_uring_probe* probe = io_uring_get_probe_ring(&ring);
  const bool can = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                   io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
  io_uring_free_probe(probe);
  return can;
}

}  // namespace

std::unique_ptr<DiskQueue> make_uring_queue(int file, int depth) {
  io_uring ring{};
  if (io_uring_queue_init(static_cast<unsigned>(depth), &ring, 0) != 0) {
    return nullptr;
  }
  auto queue = std::make_unique<UringQueue>(ring, depth);
  // Containers that allow the setup may forbid the rest.
  const bool ready = can_transfer(ring) && io_uring_register_files(&ring, &file, 1) == 0;
  return ready ? std::move(queue) : nullptr;
}

#else

std::unique_ptr<DiskQueue> make_uring_queue(int /*file*/, int /*depth*/) {
  return nullptr;
}

#endif

}  // namespace colossal
