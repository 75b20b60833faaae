// How does a CPU count its tensors and pretend to be a device of a given size? An allocator in
// front of LibTorch's own.
#include "memory/device_memory.hpp"

#include "core/error.hpp"
#include "memory/cuda/gpu_memory.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <mutex>
#include <utility>

namespace colossal {
namespace {

/// In front of every block: its length, in as many bytes as keep the block aligned. LibTorch's raw
/// interface (oneDNN uses it) has no place for a context beside the pointer.
constexpr std::size_t kHeaderBytes = c10::gAlignment;
static_assert(kHeaderBytes >= sizeof(std::int64_t));

/// The counting allocator and what it counted.
class CountingDevice final : public c10::Allocator, public DeviceMemory {
 public:
  CountingDevice() {
    constexpr std::uint8_t kAboveDefault = 1;
    c10::SetCPUAllocator(this, kAboveDefault);
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    const auto wanted = static_cast<std::int64_t>(bytes);
    if (bytes == 0) {
      return {nullptr, nullptr, &free_block, c10::Device(c10::DeviceType::CPU)};
    }
    if (bytes > kLargest || !gauge(MemoryKind::device).try_add(wanted)) {
      refuse(wanted, limit());
    }
    void* block = nullptr;
    try {
      block = c10::alloc_cpu(bytes + kHeaderBytes);
    } catch (const c10::Error&) {
      gauge(MemoryKind::device).remove(wanted);
      refuse(wanted, std::nullopt);
    }
    std::memcpy(block, &wanted, sizeof(wanted));
    void* data = static_cast<std::byte*>(block) + kHeaderBytes;
    report(data, wanted);
    return {data, data, &free_block, c10::Device(c10::DeviceType::CPU)};
  }

  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  [[nodiscard]] MemoryUse use() const override { return gauge(MemoryKind::device).use(); }
  void reset_peak() override { gauge(MemoryKind::device).reset_peak(); }
  void set_limit(std::optional<std::int64_t> bytes) override {
    gauge(MemoryKind::device).set_limit(bytes);
  }
  [[nodiscard]] std::optional<std::int64_t> limit() const override {
    return gauge(MemoryKind::device).limit();
  }
  [[nodiscard]] std::optional<Refusal> last_refusal() const override {
    const std::lock_guard lock(mutex_);
    return refusal_;
  }

 private:
  /// Beyond it the sum with the header, or a count of bytes, would overflow.
  static constexpr std::size_t kLargest = std::size_t{1} << 62U;

  static void free_block(void* data) {
    if (data == nullptr) {
      return;
    }
    void* block = static_cast<std::byte*>(data) - kHeaderBytes;
    std::int64_t bytes = 0;
    std::memcpy(&bytes, block, sizeof(bytes));
    gauge(MemoryKind::device).remove(bytes);
    report(data, -bytes);
    c10::free_cpu(block);
  }

  /// To whoever asks torch for what its thread takes, as torch's own allocator does.
  static void report(void* data, std::int64_t bytes) {
    if (c10::memoryProfilingEnabled()) {
      const auto held = static_cast<std::size_t>(gauge(MemoryKind::device).use().current);
      c10::reportMemoryUsageToProfiler(data, bytes, held, 0, c10::Device(c10::DeviceType::CPU));
    }
  }

  [[noreturn]] void refuse(std::int64_t wanted, std::optional<std::int64_t> limit) {
    const MemoryUse now = use();
    {
      const std::lock_guard lock(mutex_);
      refusal_ = Refusal{.requested = wanted,
                         .allocated = now.current,
                         .peak = now.highest,
                         .limit = limit,
                         .place = trace::here()};
    }
    if (limit) {
      TORCH_CHECK_WITH(OutOfMemoryError,
                       false,
                       "out of memory: ",
                       wanted,
                       " bytes were asked for, ",
                       now.current,
                       " of the ",
                       *limit,
                       " bytes of run.device_memory are in use");
    }
    TORCH_CHECK_WITH(OutOfMemoryError,
                     false,
                     "out of memory: the host cannot allocate ",
                     wanted,
                     " bytes, ",
                     now.current,
                     " bytes are in use");
  }

  mutable std::mutex mutex_;
  std::optional<Refusal> refusal_;
};

}  // namespace

namespace {

/// The GPU that device_memory() tells of; null: the CPU.
DeviceMemory*& chosen_gpu() {
  static DeviceMemory* gpu = nullptr;
  return gpu;
}

}  // namespace

void count_device_memory(at::Device device) {
  chosen_gpu() = device.is_cuda() ? &cuda::gpu_memory(device) : nullptr;
}

DeviceMemory& device_memory() {
  if (chosen_gpu() != nullptr) {
    return *chosen_gpu();
  }
  // Never destroyed: tensors of static objects may be freed after everything else.
  static CountingDevice* const device = new CountingDevice();
  return *device;
}

}  // namespace colossal
