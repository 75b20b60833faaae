// How do three buffers go round? Slot i lives in buffer i mod 3, from its read to the end of its
// write.
#include "memory/slot_pipeline.hpp"

#include "memory/host_memory.hpp"

#include <algorithm>
#include <cstdint>

namespace colossal {

SlotPipeline::SlotPipeline(NvmeFile& file) : file_(file) {
  std::int64_t largest = 0;
  for (int slot = 0; slot < file.num_slots(); ++slot) {
    largest = std::max(largest, file.slot_bytes(slot));
  }
  for (at::Tensor& memory : buffers_) {
    memory = host_empty(largest, at::kByte);
  }
}

at::Tensor SlotPipeline::buffer(std::size_t index, int slot) const {
  return buffers_[index % kBuffers].narrow(0, 0, file_.slot_bytes(slot));
}

void SlotPipeline::visit(std::span<const int> slots, StateAccess access, const Use& use) {
  // On an error their destructors wait: no transfer outlives the call.
  std::array<NvmePending, kBuffers> reads;
  std::array<NvmePending, kBuffers> writes;
  const auto start_read = [&](std::size_t i) {
    if (i < slots.size() && access != StateAccess::none) {
      writes[i % kBuffers].wait();  // of slot i - 3, whose buffer this is
      reads[i % kBuffers] = file_.read(slots[i], buffer(i, slots[i]));
    }
  };
  start_read(0);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    reads[i % kBuffers].wait();
    start_read(i + 1);
    const at::Tensor bytes = buffer(i, slots[i]);
    use(slots[i], bytes);
    if (access == StateAccess::update) {
      writes[i % kBuffers] = file_.write(slots[i], bytes);
    }
  }
  for (NvmePending& write : writes) {
    write.wait();
  }
}

}  // namespace colossal
