// How does a kernel of our own multiply matrices and do more with the result while it multiplies
// on? Two groups of four warps take turns: one multiplies a tile while the other finishes and
// writes its own. In a block one thread copies tiles of the operands into a ring of stages, one
// carries pieces of results; two blocks form a cluster and share the tiles of the weight.
#pragma once

#include "nn/kernels/cuda/element.cuh"
#include "nn/kernels/cuda/hopper.cuh"

namespace colossal::kernels::cuda::product_tiles {

inline constexpr int kRows = 128;                  // of a tile of the result
inline constexpr int kColumns = 128;               // of a tile of the result
inline constexpr int kDepth = 64;                  // of a step of the sum
inline constexpr int kPanel = 64;                  // columns of 16 bits in rows of 128 bytes
inline constexpr int kHalves = kColumns / kPanel;  // of a tile, which are finished apart
inline constexpr int kBlocks = kRows / 64;         // of rows of one instruction
inline constexpr int kCluster = 2;
inline constexpr int kGroups = 2;
inline constexpr int kGroupWarps = 4;
inline constexpr int kThreads = (1 + kGroups) * kGroupWarps * kWarp;
inline constexpr int kHelperRegisters = 72;
inline constexpr int kProductRegisters = 216;

struct Operands {
  __nv_bfloat16 a[kRows][kDepth];
  __nv_bfloat16 weight[kCluster][kPanel][kPanel];  // a part from each block of the cluster
};
static_assert(kCluster * kPanel * kPanel == kColumns * kDepth);

/// Columns of a tile on their way from or to a matrix.
struct Piece {
  __nv_bfloat16 rows[kRows][kPanel];
};

/// As many stages as kPieces pieces leave room for.
template <int kPieces>
struct Shared {
  static constexpr int kStages = 7 - kPieces / 2;
  Operands stages[kStages];
  Piece pieces[kPieces];
  float2 sums[kHalves][kGroupWarps][kWarp];  // of columns, of each warp's rows
  hopper::Barrier full[kStages];
  hopper::Barrier empty[kStages];
  hopper::Barrier start[kGroups];    // a group's turn to multiply
  hopper::Barrier order[kGroups];    // a group's turn to finish
  hopper::Barrier arrived[kHalves];  // pieces that are read
  hopper::Barrier written[kHalves];  // by the group
  hopper::Barrier seen[kHalves];     // by those who read what it wrote
};

template <class Finish>
using SharedOf = Shared<Finish::kPieces>;
template <class Finish>
inline constexpr int kSharedBytes = static_cast<int>(sizeof(SharedOf<Finish>));

struct Maps {
  CUtensorMap a;
  CUtensorMap weight;
  CUtensorMap pre;
  CUtensorMap out;
};

/// The tiles that a cluster works on, one after the other; its blocks take tiles below each other.
struct Schedule {
  int pairs_of_rows;
  int columns;
  int steps;  // of a sum

  [[nodiscard]] __device__ int first() const { return static_cast<int>(blockIdx.x) / kCluster; }
  [[nodiscard]] __device__ int next(int tile) const {
    return tile + static_cast<int>(gridDim.x) / kCluster;
  }
  [[nodiscard]] __device__ bool has(int tile) const { return tile < pairs_of_rows * columns; }
  [[nodiscard]] __device__ int row(int tile) const {
    return (tile / columns * kCluster + hopper::rank_in_cluster()) * kRows;
  }
  [[nodiscard]] __device__ int column(int tile) const { return tile % columns * kColumns; }
};

/// A place in the ring of stages and how often it was filled, modulo 2.
template <int kStages>
struct Turn {
  int stage = 0;
  std::uint32_t parity = 0;

  __device__ void advance() {
    stage = stage + 1 == kStages ? 0 : stage + 1;
    parity ^= stage == 0 ? 1U : 0U;
  }
  __device__ void advance_by(int steps) {
    const int to = stage + steps;
    parity ^= static_cast<std::uint32_t>(to / kStages) & 1U;
    stage = to % kStages;
  }
};

/// Sums of a group's tile: a thread's part of each 64 rows.
using Sums = float[kBlocks][hopper::kSums];

/// A step's tiles of both operands; each block copies a part of the weight's for all.
template <hopper::RowsOf kRowsOfWeight>
__device__ inline void copy_operands(
    Operands& to, hopper::Barrier* full, const Maps& maps, int row, int column, int depth) {
  constexpr auto kAll = static_cast<std::uint16_t>((1U << kCluster) - 1U);
  hopper::expect(full, sizeof(Operands));
  const int own = hopper::rank_in_cluster();
  if constexpr (kRowsOfWeight == hopper::RowsOf::sum) {
    hopper::load_box_to(kAll, to.weight[own], maps.weight, full, column + own * kPanel, depth);
  } else {
    hopper::load_box_to(kAll, to.weight[own], maps.weight, full, depth, column + own * kPanel);
  }
  hopper::load_box(to.a, maps.a, full, depth, row);
}

/// One thread: the operands of all tiles.
template <class Finish>
__device__ inline void copy_in(SharedOf<Finish>& shared,
                               const Maps& maps,
                               const Schedule& schedule) {
  Turn<SharedOf<Finish>::kStages> turn;
  for (int tile = schedule.first(); schedule.has(tile); tile = schedule.next(tile)) {
    const int row = schedule.row(tile);
    const int column = schedule.column(tile);
    for (int step = 0; step < schedule.steps; ++step) {
      hopper::wait(&shared.empty[turn.stage], turn.parity ^ 1U);
      copy_operands<Finish::kRowsOfWeight>(
          shared.stages[turn.stage], &shared.full[turn.stage], maps, row, column, step * kDepth);
      turn.advance();
    }
  }
}

/// Four warps: one step of a tile.
template <hopper::RowsOf kRowsOfWeight>
__device__ inline void multiply_step(Operands& from, bool adds, Sums& sums) {
  constexpr bool kBySum = kRowsOfWeight == hopper::RowsOf::sum;
  constexpr std::uint32_t kPanelBytes = sizeof(Operands::weight) / kHalves;
  constexpr std::uint32_t kOnce = 16;  // columns of a and rows of b in one instruction
  constexpr std::uint32_t kWeightBytes = kBySum ? kOnce * kPanel * 2 : kOnce * 2;
  constexpr std::uint32_t kBlockBytes = sizeof(Operands::a) / kBlocks;
  const std::uint32_t a = hopper::shared_address(from.a);
  const std::uint32_t b = hopper::shared_address(from.weight);
  hopper::begin_products();
#pragma unroll
  for (std::uint32_t k = 0; k < kDepth / kOnce; ++k) {
    const std::uint64_t weight = hopper::tile_at(b + k * kWeightBytes, kBySum ? kPanelBytes : 16);
#pragma unroll
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
      hopper::multiply<kRowsOfWeight>(sums[block],
                                      hopper::tile_at(a + block * kBlockBytes + k * kOnce * 2, 16),
                                      weight,
                                      adds || k > 0);
    }
  }
  hopper::commit_products();
}

/// The warp's arrival, after which a stage may be filled again in all blocks that fill it.
__device__ inline void release(hopper::Barrier* empty) {
  if (threadIdx.x % kWarp == 0) {
    for (int block = 0; block < kCluster; ++block) {
      hopper::arrive_at(empty, block);
    }
  }
}

/// The warp wrote its part of a piece, or its turn is over.
__device__ inline void tell(hopper::Barrier* barrier) {
  __syncwarp();
  if (threadIdx.x % kWarp == 0) {
    hopper::arrive(barrier);
  }
}

__device__ inline void pin(Sums& sums) {
#pragma unroll
  for (auto& block : sums) {
    hopper::pin(block);
  }
}

/// Four warps: the sums of a tile. The products of one step are under way while those of the next
/// begin, and those of the last while the other group's first begin.
template <class Finish>
__device__ inline void multiply_tile(SharedOf<Finish>& shared,
                                     Turn<SharedOf<Finish>::kStages>& turn,
                                     hopper::Barrier* next,
                                     int steps,
                                     Sums& sums) {
  int last = 0;
  pin(sums);
  for (int step = 0; step < steps; ++step) {
    hopper::wait(&shared.full[turn.stage], turn.parity);
    multiply_step<Finish::kRowsOfWeight>(shared.stages[turn.stage], step > 0, sums);
    if (step > 0) {
      hopper::wait_products<1>();
      release(&shared.empty[last]);
    }
    last = turn.stage;
    turn.advance();
  }
  tell(next);
  hopper::wait_products<0>();
  pin(sums);
  release(&shared.empty[last]);
}

/// Four warps: every other tile. They begin and finish tiles in order, so that who waits for a
/// phase of a barrier never comes before the end of the phase before it.
template <class Finish>
__device__ inline void multiply_tiles(SharedOf<Finish>& shared,
                                      int group,
                                      const typename Finish::Args& args,
                                      const Schedule& schedule) {
  Sums sums;
  Turn<SharedOf<Finish>::kStages> turn;
  turn.advance_by(group * schedule.steps);
  auto parity = static_cast<std::uint32_t>(group ^ 1);
  const int first = group == 0 ? schedule.first() : schedule.next(schedule.first());
  for (int tile = first; schedule.has(tile); tile = schedule.next(schedule.next(tile))) {
    Finish finish(args, schedule.column(tile));
    hopper::wait(&shared.start[group], parity);
    multiply_tile<Finish>(shared, turn, &shared.start[group ^ 1], schedule.steps, sums);
    turn.advance_by(schedule.steps);
    hopper::wait(&shared.order[group], parity);
    parity ^= 1U;
    finish(shared, group, sums);
    tell(&shared.order[group ^ 1]);
  }
}

template <class Finish>
__device__ inline void init_barriers(SharedOf<Finish>& shared) {
  for (int stage = 0; stage < SharedOf<Finish>::kStages; ++stage) {
    hopper::init(&shared.full[stage], 1);
    hopper::init(&shared.empty[stage], kCluster * kGroupWarps);
  }
  for (int group = 0; group < kGroups; ++group) {
    hopper::init(&shared.start[group], kGroupWarps);
    hopper::init(&shared.order[group], kGroupWarps);
  }
  for (int half = 0; half < kHalves; ++half) {
    hopper::init(&shared.arrived[half], 1);
    hopper::init(&shared.written[half], kGroupWarps);
    hopper::init(&shared.seen[half], 1);
  }
  hopper::publish_barriers();
}

/// Byte address in a piece of the lane's row of an 8 x 8 matrix: four of them, 16 rows and 16
/// columns from `pack` on, lie in the registers of a warp as a product leaves them.
__device__ inline std::uint32_t matrix_at(Piece& piece, int block, int pack) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp % kGroupWarps;
  const int row = block * 64 + warp * 16 + lane % 16;
  return hopper::shared_address(piece.rows[row]) +
         static_cast<std::uint32_t>(((pack + lane / 16) ^ (lane % 8)) * 16);
}

__device__ inline float low_of(std::uint32_t pair) {
  return __uint_as_float(pair << 16U);
}
__device__ inline float high_of(std::uint32_t pair) {
  return __uint_as_float(pair & 0xFFFF0000U);
}
__device__ inline std::uint32_t pair_of(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// Of exp(-x) with factor times x = -x log2(e): 1 / (1 + exp(-x)), to some 2^-22.
__device__ inline float sigmoid_of_power(float power) {
  float e = 0;
  float s = 0;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(power));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(s) : "f"(1 + e));
  return s;
}

/// A block: `Finish` says what becomes of sums and what three warps do meanwhile.
template <class Finish>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    product_kernel(const __grid_constant__ Maps maps,
                   const typename Finish::Args args,
                   const Schedule schedule) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kAlignment = 1024;  // of swizzled tiles
  extern __shared__ __align__(kAlignment) char memory[];
  auto& shared = *reinterpret_cast<SharedOf<Finish>*>(memory);
  if (hopper::shared_address(memory) % kAlignment != 0) {
    __trap();
  }
  if (threadIdx.x == 0) {
    init_barriers<Finish>(shared);
  }
  hopper::cluster_sync();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (warp < kGroupWarps) {
    hopper::shrink_registers<kHelperRegisters>();
    const bool one = threadIdx.x % kWarp == 0;
    if (warp == 0 && one) {
      copy_in<Finish>(shared, maps, schedule);
    } else if (warp == 1 && one) {
      Finish::carry(shared, maps, schedule);
    } else if (warp >= 2) {
      Finish::watch(shared, args, warp - 2, schedule);
    }
    __syncwarp();
  } else {
    hopper::grow_registers<kProductRegisters>();
    multiply_tiles<Finish>(shared, warp / kGroupWarps - 1, args, schedule);
  }
  hopper::cluster_sync();  // nobody goes while the other one may still write here
#endif
}

}  // namespace colossal::kernels::cuda::product_tiles
