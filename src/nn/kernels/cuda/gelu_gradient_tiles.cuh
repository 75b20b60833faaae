// Which tiles does the kernel of gelu's gradient work on, and who carries them? Operands, the
// pre-activation and results go through one ring of stages in shared memory; a block's helpers copy
// them in and out and sum the columns of results.
#pragma once

#include "nn/kernels/cuda/element.cuh"
#include "nn/kernels/cuda/hopper.cuh"

namespace colossal::kernels::cuda::gelu_tiles {

inline constexpr int kRows = 128;     // of a tile of the result
inline constexpr int kColumns = 256;  // of a tile of the result
inline constexpr int kDepth = 64;     // of a step of the sum
inline constexpr int kPanel = 64;     // columns of 16 bits in rows of 128 bytes
inline constexpr int kPanels = kColumns / kPanel;
inline constexpr int kHalves = 2;  // of a tile, which are read and written apart
inline constexpr int kHalfPanels = kPanels / kHalves;
inline constexpr int kStages = 4;
inline constexpr int kCluster = 2;
inline constexpr int kThreads = 384;
inline constexpr int kHelperRegisters = 56;
inline constexpr int kProductRegisters = 224;
inline constexpr int kProductWarps = 8;
inline constexpr int kSummingWarps = 2;
inline constexpr int kReleases = 8;  // of a stage, in each block

struct Operands {
  __nv_bfloat16 g[kRows][kDepth];
  __nv_bfloat16 weight[kPanels][kDepth][kPanel];
};

/// The pre-activation, then the result in its place.
struct Half {
  __nv_bfloat16 panels[kHalfPanels][kRows][kPanel];
};

union Stage {
  Operands operands;
  Half half;
};

/// Stages are a ring: the steps of a tile's sum, then its halves.
struct Shared {
  Stage stages[kStages];
  hopper::Barrier full[kStages];
  hopper::Barrier empty[kStages];
  hopper::Barrier written[kHalves];
};

inline constexpr int kAlignment = 1024;  // of swizzled tiles
inline constexpr int kSharedBytes = static_cast<int>(sizeof(Shared)) + kAlignment;

struct Maps {
  CUtensorMap g;
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

/// One of the kReleases arrivals after which a stage may be filled again, in all blocks that fill
/// it.
__device__ inline void release(Shared& shared, int stage) {
  for (int block = 0; block < kCluster; ++block) {
    hopper::arrive_at(&shared.empty[stage], block);
  }
}

/// A step's tiles of both operands; each block copies a part of the weight's for all.
__device__ inline void copy_operands(
    Shared& shared, const Maps& maps, const Turn& turn, int row, int column, int depth) {
  constexpr int kOwn = kPanels / kCluster;
  constexpr auto kAll = static_cast<std::uint16_t>((1U << kCluster) - 1U);
  Operands& to = shared.stages[turn.stage].operands;
  hopper::Barrier* const full = &shared.full[turn.stage];
  hopper::expect(full, sizeof(Operands));
  const int own = hopper::rank_in_cluster() * kOwn;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int panel = own + i;
    hopper::load_box_to(kAll, to.weight[panel], maps.weight, full, column + panel * kPanel, depth);
  }
  hopper::load_box(to.g, maps.g, full, depth, row);
}

/// One thread: all that comes into shared memory.
__device__ inline void copy_in(Shared& shared, const Maps& maps, const Schedule& schedule) {
  Turn turn;
  for (int tile = schedule.first(); schedule.has(tile); tile = schedule.next(tile)) {
    const int row = schedule.row(tile);
    const int column = schedule.column(tile);
    for (int step = 0; step < schedule.steps; ++step) {
      hopper::wait(&shared.empty[turn.stage], turn.parity ^ 1U);
      copy_operands(shared, maps, turn, row, column, step * kDepth);
      turn.advance();
    }
    for (int half = 0; half < kHalves; ++half) {
      hopper::wait(&shared.empty[turn.stage], turn.parity ^ 1U);
      hopper::Barrier* const full = &shared.full[turn.stage];
      hopper::expect(full, sizeof(Half));
#pragma unroll
      for (int i = 0; i < kHalfPanels; ++i) {
        hopper::load_box(shared.stages[turn.stage].half.panels[i],
                         maps.pre,
                         full,
                         column + (half * kHalfPanels + i) * kPanel,
                         row);
      }
      turn.advance();
    }
  }
}

/// One thread: results to the matrix.
__device__ inline void copy_out(Shared& shared, const Maps& maps, const Schedule& schedule) {
  constexpr int kOwnReleases = kReleases - 3 * kSummingWarps;
  Turn turn;
  std::uint32_t parity = 0;
  for (int tile = schedule.first(); schedule.has(tile); tile = schedule.next(tile)) {
    turn.advance_by(schedule.steps);
    for (int half = 0; half < kHalves; ++half) {
      hopper::wait(&shared.written[half], parity);
#pragma unroll
      for (int i = 0; i < kHalfPanels; ++i) {
        hopper::store_box(shared.stages[turn.stage].half.panels[i],
                          maps.out,
                          schedule.column(tile) + (half * kHalfPanels + i) * kPanel,
                          schedule.row(tile));
      }
      hopper::wait_stored();
      for (int i = 0; i < kOwnReleases; ++i) {
        release(shared, turn.stage);
      }
      turn.advance();
    }
    parity ^= 1U;
  }
}

__device__ inline float low_of(std::uint32_t pair) {
  return __uint_as_float(pair << 16U);
}
__device__ inline float high_of(std::uint32_t pair) {
  return __uint_as_float(pair & 0xFFFF0000U);
}

/// Sums of two columns of a half.
__device__ inline float2 sums_of(const Half& half, int column) {
  constexpr int kPack = 8;  // elements that swizzling keeps together
  const int pack = column % kPanel / kPack;
  float2 sums{};
#pragma unroll 16
  for (int row = 0; row < kRows; ++row) {
    const int at = (pack ^ (row % kPack)) * kPack + column % kPack;
    const std::uint32_t pair =
        *reinterpret_cast<const std::uint32_t*>(&half.panels[column / kPanel][row][at]);
    sums.x += low_of(pair);
    sums.y += high_of(pair);
  }
  return sums;
}

/// Two warps: sums of what is written, two columns of each half a thread.
__device__ inline void sum_columns(Shared& shared,
                                   float* partial,
                                   std::int64_t rows,
                                   std::int64_t features,
                                   const Schedule& schedule) {
  static_assert(kProductWarps == kReleases);
  static_assert(kHalfPanels * kPanel == 2 * kSummingWarps * kWarp);
  const int own = static_cast<int>(threadIdx.x) % (kSummingWarps * kWarp) * 2;
  Turn turn;
  std::uint32_t parity = 0;
  for (int tile = schedule.first(); schedule.has(tile); tile = schedule.next(tile)) {
    turn.advance_by(schedule.steps);
    for (int half = 0; half < kHalves; ++half) {
      hopper::wait(&shared.written[half], parity);
      const float2 sums = sums_of(shared.stages[turn.stage].half, own);
      __syncwarp();
      if (threadIdx.x % kWarp < 3) {
        release(shared, turn.stage);
      }
      turn.advance();
      const std::int64_t row = schedule.row(tile);
      const std::int64_t column = schedule.column(tile) + half * kHalfPanels * kPanel + own;
      if (row < rows && column < features) {
        *reinterpret_cast<float2*>(partial + row / kRows * features + column) = sums;
      }
    }
    parity ^= 1U;
  }
}

}  // namespace colossal::kernels::cuda::gelu_tiles
