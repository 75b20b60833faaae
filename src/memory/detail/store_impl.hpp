// What does a ChunkStore hold, and which steps does it take? Private to its files.
#pragma once

#include "memory/chunk_store.hpp"
#include "memory/detail/chunk.hpp"
#include "memory/detail/measured_plan.hpp"
#include "memory/detail/state_disk.hpp"
#include "memory/detail/trace.hpp"

#include <deque>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {
namespace detail {

enum class GradState : std::uint8_t { empty, accumulating, reducing, ready };

/// What changes about a chunk during a step.
struct Progress {
  GradState state = GradState::empty;
  int blocks_left = 0;  ///< blocks that have not reported what the next reduction waits for
  int users = 0;        ///< acquisitions without release
};

/// A block as the store sees it.
struct BlockRecord {
  std::string name;
  std::vector<int> params;  ///< indices into all parameters
  std::vector<int> chunks;  ///< each once
  bool reported = false;    ///< its last gradients of this step are in
};

}  // namespace detail

struct ChunkStore::Impl {
  Impl(std::span<const Block> block_list,
       const ChunkPlanner& planner,
       std::span<const std::string_view> optimizer_states,
       const StoreOptions& store_options,
       const ParallelContext& parallel);

  void collect(std::span<const Block> block_list, ParamUses uses);
  void number_owners(const std::vector<int>& owner_of);
  void attach_tied(const std::vector<int>& owner_of);
  void check_budget() const;

  detail::BlockRecord& block_at(int block);
  std::string label(int chunk) const;
  void check_state(int chunk,
                   std::initializer_list<detail::GradState> allowed,
                   std::string_view action) const;

  void gather(int chunk);
  void gather_ahead();
  bool make_room(std::int64_t bytes, bool may_drop);
  void drop(int chunk);
  void drop_unneeded(const detail::BlockRecord& block);
  void open_gradients(const detail::BlockRecord& block);

  [[nodiscard]] std::optional<std::int64_t> cache_budget() const;
  [[nodiscard]] std::int64_t home_bytes() const;
  [[nodiscard]] std::int64_t needed_bytes(const detail::BlockRecord& block) const;
  void observe(bool next_acquisition);
  void measure_again_if_due();
  void follow_measurement();
  void check_room(const detail::MeasuredInput& input, const detail::MeasuredDecision& decision);
  void move_homes(const detail::MeasuredDecision& decision);

  void publish(bool cast);

  void count_reports();
  void launch_complete();
  void finish_reduce(int chunk);

  const ParallelContext& context;
  StoreOptions options;
  std::vector<Parameter*> all;     // in order of first use, tied ones too
  std::vector<ParamSpec> specs;    // of all
  std::vector<int> users;          // of all: acquired and not yet released
  std::vector<Parameter*> owners;  // those with memory of their own
  std::vector<detail::BlockRecord> blocks;
  ChunkPlan plan;  // parameters numbered as in owners
  std::unique_ptr<BlockPool> pool;
  std::unique_ptr<cuda::CopyStream> copies_in;   // to the device; null on a CPU
  std::unique_ptr<cuda::CopyStream> copies_out;  // to the host
  std::vector<std::string_view> states;
  std::unique_ptr<detail::ChunkShared> shared;
  std::vector<std::unique_ptr<detail::Chunk>> chunks;
  std::vector<FlatShard> shards;
  std::unique_ptr<detail::StateDisk> disk;  // null: no states on disk
  std::vector<detail::Progress> progress;
  int next_launch = 0;       // chunks before it are reducing or ready
  std::deque<int> reducing;  // chunks whose reduction runs, oldest first
  detail::StepTrace trace{{}};
  std::int64_t cached_bytes = 0;  // of gathered chunks that are not resident
  StoreCounters counters;
  std::optional<detail::NonModelTrace> measuring;  // of a measured plan, until publish() decides
  std::vector<std::int64_t> non_model;             // what the last step measured, until then
  std::vector<std::int64_t> budgets;               // by acquisition, once decided
};

}  // namespace colossal
