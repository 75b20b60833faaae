// Where in its slot is a state? At its number times the length of the shard.
#include "memory/detail/state_disk.hpp"

#include "core/log.hpp"

namespace colossal::detail {
namespace {

std::vector<int> chunks_on_disk(const ChunkPlan& plan) {
  std::vector<int> chunks;
  for (int chunk = 0; chunk < std::ssize(plan.chunks); ++chunk) {
    if (plan.chunks[static_cast<std::size_t>(chunk)].states_on_disk) {
      chunks.push_back(chunk);
    }
  }
  return chunks;
}

std::vector<std::int64_t> slot_bytes(const std::vector<int>& chunks,
                                     std::span<const FlatShard> shards,
                                     const StateNames& states) {
  std::vector<std::int64_t> bytes;
  for (const int chunk : chunks) {
    bytes.push_back(shards[static_cast<std::size_t>(chunk)].master.numel() *
                    static_cast<std::int64_t>(at::elementSize(states.dtype)) *
                    std::ssize(states.names));
  }
  return bytes;
}

}  // namespace

StateDisk::StateDisk(const NvmeOptions& options,
                     const ChunkPlan& plan,
                     std::span<FlatShard> shards,
                     const StateNames& states)
    : names_(states.names.begin(), states.names.end()),
      dtype_(states.dtype),
      chunk_of_(chunks_on_disk(plan)),
      file_(options, slot_bytes(chunk_of_, shards, states)),
      pipeline_(file_) {
  for (int slot = 0; slot < file_.num_slots(); ++slot) {
    slots_.push_back(slot);
  }
  buffer_ = pipeline_.spare();
  for (const int slot : slots_) {
    FlatShard& shard = shards[static_cast<std::size_t>(chunk_of_[static_cast<std::size_t>(slot)])];
    attach(shard, buffer_);
    shard.bring_states = [this, slot] { bring(slot); };
    shard.keep_states = [this] { keep(); };
  }
  if (options.rank == 0) {
    log::console(describe(file_, options.folder, file_.measure(buffer_)));
  }
}

void StateDisk::attach(FlatShard& shard, const at::Tensor& bytes) const {
  const std::int64_t numel = shard.master.numel();
  const at::Tensor values =
      bytes
          .narrow(
              0, 0, numel * std::ssize(names_) * static_cast<std::int64_t>(at::elementSize(dtype_)))
          .view(dtype_);
  for (std::size_t i = 0; i < names_.size(); ++i) {
    shard.state.insert_or_assign(std::string(names_[i]),
                                 values.narrow(0, static_cast<std::int64_t>(i) * numel, numel));
  }
}

void StateDisk::bring(int slot) {
  if (held_ != slot) {
    held_ = -1;
    file_.read(slot, buffer_).wait();
    held_ = slot;
  }
}

void StateDisk::keep() {
  file_.write(held_, buffer_).wait();
}

void StateDisk::visit(std::span<FlatShard> shards,
                      StateAccess access,
                      const std::function<void(std::span<FlatShard>)>& call) {
  held_ = -1;  // the pass uses the buffer
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= shards.size(); ++i) {
    const bool ends = i == shards.size() || shards[i].bring_states;
    if (ends && begin < i) {
      call(shards.subspan(begin, i - begin));
    }
    begin = ends ? i + 1 : begin;
  }
  pipeline_.visit(slots_, access, [&](int slot, const at::Tensor& bytes) {
    FlatShard shard = shards[static_cast<std::size_t>(chunk_of_[static_cast<std::size_t>(slot)])];
    const bool apart = shard.master.device() != bytes.device();  // an update runs where masters are
    const at::Tensor there = apart ? bytes.to(shard.master.device()) : bytes;
    attach(shard, there);
    call({&shard, 1});
    if (apart && access == StateAccess::update) {
      bytes.copy_(there);
    }
  });
}

}  // namespace colossal::detail
