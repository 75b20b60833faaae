// How do optimizer states on disk look like states in memory? Each shard has a slot; a buffer holds
// one at a time.
#pragma once

#include "memory/chunk_plan.hpp"
#include "memory/flat_shard.hpp"
#include "memory/nvme_file.hpp"
#include "memory/slot_pipeline.hpp"

#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace colossal::detail {

/// States of every shard, and their dtype.
struct StateNames {
  std::span<const std::string_view> names;
  at::ScalarType dtype = at::kFloat;
};

/// The states of all shards whose chunk says states_on_disk, one slot each, one state behind the
/// other.
class StateDisk {
 public:
  /// Makes the file, says where and how fast it is, and gives these shards state tensors in a
  /// shared buffer, with bring_states and keep_states. `shards[i]` is of `plan.chunks[i]`. Errors:
  /// those of NvmeFile; memory "host-memory".
  StateDisk(const NvmeOptions& options,
            const ChunkPlan& plan,
            std::span<FlatShard> shards,
            const StateNames& states);

  /// See ChunkStore::visit(): runs in memory first, then the slots, read ahead and written behind.
  void visit(std::span<FlatShard> shards,
             StateAccess access,
             const std::function<void(std::span<FlatShard>)>& call);

 private:
  void bring(int slot);
  void keep();
  /// State tensors of the shard on `bytes` of its slot.
  void attach(FlatShard& shard, const at::Tensor& bytes) const;

  std::vector<std::string_view> names_;
  at::ScalarType dtype_;
  std::vector<int> chunk_of_;  ///< by slot
  std::vector<int> slots_;     ///< 0, 1, ...
  NvmeFile file_;
  SlotPipeline pipeline_;
  at::Tensor buffer_;  ///< of bring() and keep(), lent by the pipeline
  int held_ = -1;      ///< slot in the buffer
};

}  // namespace colossal::detail
