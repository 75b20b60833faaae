// How is the memory of a GPU counted, and how do bytes come to it and back? By LibTorch's caching
// allocator, and by streams that the computation waits for, never the host.
#include "memory/cuda/gpu_memory.hpp"

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

namespace colossal::cuda {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

std::int64_t card_bytes(at::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  std::size_t free = 0;
  std::size_t total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<std::int64_t>(total);
}

class GpuMemory final : public DeviceMemory {
 public:
  explicit GpuMemory(at::Device device)
      : device_(device), card_bytes_(card_bytes(device)), limit_(card_bytes_) {
    allocator::attachOutOfMemoryObserver(
        [this](std::int64_t index, std::size_t wanted, std::size_t /*total*/, std::size_t free) {
          if (index == device_.index()) {
            remember(static_cast<std::int64_t>(wanted), static_cast<std::int64_t>(free));
          }
        });
  }

  [[nodiscard]] MemoryUse use() const override {
    const Stat bytes = stat(&Stats::requested_bytes);
    const std::lock_guard lock(mutex_);
    highest_ = std::max(highest_, bytes.peak);
    return {.current = bytes.current, .peak = bytes.peak, .highest = highest_};
  }

  void reset_peak() override {
    static_cast<void>(use());  // the highest of all is ours to keep
    allocator::resetPeakStats(device_.index());
  }

  void set_limit(std::optional<std::int64_t> bytes) override {
    const std::int64_t limit = std::min(bytes.value_or(card_bytes_), card_bytes_);
    limit_ = limit;
    allocator::setMemoryFraction(static_cast<double>(limit) / static_cast<double>(card_bytes_),
                                 device_.index());
  }

  [[nodiscard]] std::optional<std::int64_t> limit() const override { return limit_; }

  [[nodiscard]] std::optional<Refusal> last_refusal() const override {
    const std::lock_guard lock(mutex_);
    return refusal_;
  }

 private:
  using Stat = c10::CachingAllocator::Stat;
  using Stats = c10::CachingDeviceAllocator::DeviceStats;

  [[nodiscard]] Stat stat(c10::CachingAllocator::StatArray Stats::* kind) const {
    constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return (allocator::getDeviceStats(device_.index()).*kind)[kAll];
  }

  [[nodiscard]] CachedBytes cached() const {
    std::size_t largest = 1;  // of 0 the allocator would make what the card has free
    allocator::cacheInfo(device_.index(), &largest);
    return {.reserved = stat(&Stats::reserved_bytes).current,
            .pieces = stat(&Stats::inactive_split_bytes).current,
            .largest_free = largest > 1 ? static_cast<std::int64_t>(largest) : 0};
  }

  /// Beside our tensors the card holds code, libraries' own memory and other processes: what there
  /// was for us is what the allocator has plus what is free.
  void remember(std::int64_t wanted, std::int64_t free) {
    const MemoryUse now = use();
    const CachedBytes now_cached = cached();
    const std::int64_t ours = now_cached.reserved + free;
    const std::lock_guard lock(mutex_);
    refusal_ = Refusal{.requested = wanted,
                       .allocated = now.current,
                       .peak = now.highest,
                       .limit = std::min(limit_.load(), ours),
                       .place = trace::here(),
                       .cached = now_cached};
  }

  at::Device device_;
  std::int64_t card_bytes_;
  std::atomic<std::int64_t> limit_;
  mutable std::mutex mutex_;
  mutable std::int64_t highest_ = 0;
  std::optional<Refusal> refusal_;
};

}  // namespace

DeviceMemory& gpu_memory(at::Device device) {
  // Never destroyed: the allocator calls its observer until the process ends.
  static GpuMemory* const memory = new GpuMemory(device);
  return *memory;
}

bool pin(void* pages, std::int64_t bytes) noexcept {
  const auto length = static_cast<std::size_t>(bytes);
  if (cudaHostRegister(pages, length, cudaHostRegisterPortable) == cudaSuccess) {
    return true;
  }
  cudaGetLastError();  // else the next kernel launch would report it
  return false;
}

void unpin(void* pages) noexcept {
  if (cudaHostUnregister(pages) != cudaSuccess) {
    cudaGetLastError();
  }
}

struct Copy::Impl {
  at::Device device;
  at::cuda::CUDAEvent done;
};

Copy::Copy() noexcept = default;
Copy::Copy(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Copy::~Copy() = default;
Copy::Copy(Copy&&) noexcept = default;
Copy& Copy::operator=(Copy&&) noexcept = default;

void Copy::join() const {
  if (impl_ != nullptr) {
    impl_->done.block(c10::cuda::getCurrentCUDAStream(impl_->device.index()));
  }
}

void Copy::finish() {
  if (const auto copy = std::exchange(impl_, nullptr)) {
    copy->done.synchronize();
  }
}

struct CopyStream::Impl {
  at::Device device;
  c10::cuda::CUDAStream stream;
  at::cuda::CUDAEvent given;  // what the next copy must come after
};

CopyStream::CopyStream(at::Device device)
    : impl_(new Impl{
          device, c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index()), {}}) {}
CopyStream::~CopyStream() = default;

Copy CopyStream::copy(const at::Tensor& to,
                      const at::Tensor& from,
                      const std::function<void()>& before) {
  impl_->given.record(c10::cuda::getCurrentCUDAStream(impl_->device.index()));
  impl_->given.block(impl_->stream);
  const c10::cuda::CUDAStreamGuard guard(impl_->stream);
  if (before) {
    before();
  }
  to.copy_(from, /*non_blocking=*/true);
  std::unique_ptr<Copy::Impl> copy(new Copy::Impl{impl_->device, {}});
  copy->done.record(impl_->stream);
  return Copy(std::move(copy));
}

}  // namespace colossal::cuda
