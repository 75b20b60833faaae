// How does a pass over all slots of an NVMe file keep disk and processor busy at once? Three
// buffers.
#pragma once

#include "memory/nvme_file.hpp"

#include <ATen/core/Tensor.h>

#include <array>
#include <functional>
#include <span>

namespace colossal {

/// Passes over the slots of a file: while slot i is used, slot i + 1 is read and slot i - 1 is
/// written.
class SlotPipeline {
 public:
  /// What is done with a slot: `bytes` is its payload, page-aligned, as kByte; it may be changed in
  /// place and is valid during the call only.
  using Use = std::function<void(int slot, const at::Tensor& bytes)>;
  /// Whether what was used is written back.
  enum class Access : std::uint8_t { read, update };

  /// Takes three buffers of host memory, each as long as the largest slot. `file` must outlive it.
  /// Errors: memory "host-memory".
  explicit SlotPipeline(NvmeFile& file);

  /// Reads, uses and (update) writes back each of `slots`, in order. When it returns, everything is
  /// written; when it throws, no transfer is under way. Errors: those of `use` and of the file.
  void visit(std::span<const int> slots, Access access, const Use& use);

 private:
  static constexpr std::size_t kBuffers = 3;

  [[nodiscard]] at::Tensor buffer(std::size_t index, int slot) const;

  NvmeFile& file_;
  std::array<at::Tensor, kBuffers> buffers_;
};

}  // namespace colossal
