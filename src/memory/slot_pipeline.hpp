// How does a pass over all slots of an NVMe file keep disk and processor busy at once? Three
// buffers.
#pragma once

#include "memory/flat_shard.hpp"
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
  static constexpr std::size_t kBuffers = 3;

  /// Takes three buffers of host memory, each as long as the largest slot. `file` must outlive it.
  /// Errors: memory "host-memory".
  explicit SlotPipeline(NvmeFile& file);

  /// Reads, uses and (update) writes back each of `slots`, in order; `access` none only uses, and
  /// the bytes mean nothing. When it returns, everything is written; when it throws, no transfer is
  /// under way. Errors: those of `use` and of the file.
  void visit(std::span<const int> slots, StateAccess access, const Use& use);
  /// Memory for one slot, which visit() uses, too.
  [[nodiscard]] const at::Tensor& spare() const noexcept { return buffers_.front(); }

 private:
  [[nodiscard]] at::Tensor buffer(std::size_t index, int slot) const;

  NvmeFile& file_;
  std::array<at::Tensor, kBuffers> buffers_;
};

}  // namespace colossal
