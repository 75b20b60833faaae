// What does one chunk do? It gathers its parameters, takes their gradients, and reduces them into
// this rank's part.
#pragma once

#include "comm/comm.hpp"
#include "memory/chunk_plan.hpp"
#include "memory/cuda/gpu_memory.hpp"
#include "memory/flat_shard.hpp"
#include "memory/held_bytes.hpp"
#include "memory/store_options.hpp"
#include "memory/swap_buffer.hpp"
#include "mesh/context.hpp"
#include "nn/parameter.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colossal::detail {

/// What all chunks of a store share.
struct ChunkShared {
  const ParallelContext& context;
  const StoreOptions& options;
  std::span<Parameter* const> owners;  ///< indexed by ChunkSpec::params
  std::span<const std::string_view> optimizer_states;
  BlockPool& pool;
  bool shard_grads = false;  ///< ChunkPlan::shard_grads
  /// Copies beside the computation; null where device and host are one memory.
  cuda::CopyStream* to_device = nullptr;
  cuda::CopyStream* to_host = nullptr;
};

/// Bytes of a chunk that go from one side of device and host to the other.
struct Crossing {
  std::int64_t gather = 0;   ///< each time that it is gathered
  std::int64_t reduce = 0;   ///< each time that its gradient is summed
  std::int64_t publish = 0;  ///< each time that its weights are published
};

/// The bytes of one chunk on this rank. Parameters are leaves in a buffer of the whole chunk, which
/// has memory while the chunk is gathered; masters, states and the summed gradient are this rank's
/// part. The caller keeps the order of calls, the same on all ranks.
class Chunk {
 public:
  /// Allocates what stays, initialises masters and weights and attaches the leaves. `spec` and
  /// `shared` must outlive the chunk. Errors: memory "out-of-memory".
  Chunk(const ChunkSpec& spec, const ChunkShared& shared);

  [[nodiscard]] FlatShard& shard() noexcept { return shard_; }
  /// Bytes of the gathered parameters.
  [[nodiscard]] std::int64_t gathered_bytes() const noexcept { return weights_.bytes(); }

  /// What it holds on the device now, without what it has from the pool.
  [[nodiscard]] HeldBytes held() const;
  /// Of the pool's: lent gradients.
  [[nodiscard]] std::int64_t lent_bytes() const noexcept;
  /// Device memory that it holds all the time.
  [[nodiscard]] std::int64_t device_bytes() const;
  /// Of master, states and summed gradient, which would move with the optimizer.
  [[nodiscard]] std::int64_t optimizer_bytes() const;
  /// Of the home of the weights, which would move beside it; 0: it goes with the optimizer.
  [[nodiscard]] std::int64_t weight_bytes() const;
  /// Moves master, states and summed gradient from host memory, and with `weights`, or where the
  /// master is the home of the weights, that home as well: a rank that holds all of it has the
  /// weights gathered from then on, in no other memory. The chunk's ChunkSpec says so already, and
  /// it must not be gathered; shard() has new tensors then. Errors: memory "out-of-memory".
  void move_to_device(bool weights);
  /// What crosses between device and host, as things are placed now.
  [[nodiscard]] Crossing crossing() const;

  /// Whether the whole parameters are here, or on their way.
  [[nodiscard]] bool gathered() const noexcept { return weights_.filled(); }
  /// Takes memory and starts the all-gather. Communicates: all-gather over shard_axes.
  void start_gather();
  /// Waits for it.
  void finish_gather();
  /// Gives the memory of gathered parameters back; nothing is lost.
  void drop();

  /// Readies memory for gradients, unless it is there: zeroed, or with lent gradients that are
  /// still to be written.
  void open_gradients();
  /// Gives the memory of lent gradients back.
  void drop_gradients();
  /// Makes gradients zero, or says that they are still to be written, at the start of a step; lent
  /// memory of the step before goes.
  void begin_gradients();
  /// Starts the sum over ranks. Communicates: all-reduce, or reduce-scatter over shard_axes.
  void start_reduce();
  /// Waits for it and adds the sum to the summed gradient of this rank's part. On a GPU a gradient
  /// whose home is the host may still be on its way.
  void finish_reduce();
  /// Waits until no copy between host and device is under way: the host may read the summed
  /// gradient and write masters.
  void land();
  /// The first parameter that got no gradient since begin_gradients(); -1: all got one.
  [[nodiscard]] int first_unused() const;

  /// New masters -> this rank's part of the compute parameters, and starts to gather resident ones.
  /// `cast`: the 16-bit copy was not written by the update.
  void start_publish(bool cast);
  void finish_publish() { finish_gather(); }

 private:
  struct Leaf {
    int param = 0;
    at::Tensor grad;            ///< a view of the gradient buffer with its own version counter
    std::uint32_t version = 0;  ///< of `grad` at the start of the step
  };

  [[nodiscard]] at::Tensor allocate(at::ScalarType dtype, Tier tier) const;
  [[nodiscard]] std::int64_t part_bytes() const;
  [[nodiscard]] at::Tensor own_part(const at::Tensor& whole) const;
  /// Whether the host's memory is another one than the device's.
  [[nodiscard]] bool apart() const noexcept { return shared_.to_device != nullptr; }
  /// to = from, one of which may be on the host and the other on the device: complete for the
  /// device after finish_gather(), and for what the stream gets next if `now`.
  void bring(const at::Tensor& to, const at::Tensor& from, bool now);
  /// Whether the first write of a gradient can replace what is there, so that nobody has to zero
  /// it: on a GPU, whose kernels can do either.
  [[nodiscard]] bool replaces_gradients() const { return shared_.context.device().is_cuda(); }
  /// Whether gradients of a micro-batch may lie where their sum does: no rank has anything to add,
  /// and nothing is there yet.
  [[nodiscard]] bool sums_in_place() const;
  void expect_gradients();
  void lend_gradients();
  void zero_unwritten();
  at::Tensor stage_gradients();
  void send_sum();
  void allocate_master();
  void keep_working_by_master();
  void allocate_gradients();
  [[nodiscard]] at::Tensor moved(const at::Tensor& from) const;
  void move_home(bool weights);
  void attach(std::size_t index);
  void initialize_master(std::size_t index);
  void cut_segments();

  const ChunkSpec& spec_;
  const ChunkShared& shared_;
  const Comm& comm_;         ///< of the ranks that sum gradients
  std::int64_t part_begin_;  ///< of this rank's part of the chunk
  std::int64_t part_numel_;
  bool keeps_gradients_;  ///< the gradient buffer holds the sum of a step's micro-batches
  bool lends_gradients_;  ///< StoreOptions::lend_grads, where keeps_gradients_
  SwapBuffer weights_;    ///< compute dtype, whole chunk
  SwapBuffer grads_;      ///< whole chunk
  at::Tensor home_;       ///< this rank's part of the weights; undefined where resident
  at::Tensor
      working_on_device_;  ///< where shard_.working, on the host, is brought to; or undefined
  std::vector<Leaf> leaves_;
  FlatShard shard_;
  bool in_place_ = false;  ///< the gradient buffer has the memory of shard_.grad
  bool summed_ = false;    ///< shard_.grad holds the sum of an earlier micro-batch of this step
  Pending gathering_;
  Pending reducing_;
  SwapBuffer staging_;   ///< the gradient in another dtype, while it is reduced; or undefined
  at::Tensor sum_;       ///< where this rank's part of the sum arrives
  cuda::Copy bringing_;  ///< of weights to the device
  cuda::Copy landing_;   ///< of the sum to the host
  at::Tensor landed_;    ///< the sum on the host, where it is added to an earlier one
};

}  // namespace colossal::detail
