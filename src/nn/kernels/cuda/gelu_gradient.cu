// A product whose result goes back through gelu_tanh before it is written, and whose columns are
// summed on the way: a thread carries pieces of the pre-activation in and the results that take
// their place out, two warps add up the sums of their columns.
#include "nn/kernels/cuda/gelu_gradient_launch.hpp"
#include "nn/kernels/cuda/product_start.cuh"

namespace colossal::kernels::cuda {

namespace product_tiles {

namespace {

/// Slope of gelu_tanh at z, and gelu_tanh itself.
struct Gelu {
  float slope;
  float value;
};

/// The slope is s (1 + (1 - s) z (2 a + 6 a c z^2)), the value s z, with s = 1 / (1 + exp(-2 a z (1
/// + c z^2))).
__device__ inline Gelu gelu_at(float z) {
  constexpr float kA = 0.79788456080286535588F;
  constexpr float kC = 0.044715F;
  constexpr float kLog2E = 1.4426950408889634074F;
  const float square = z * z;
  const float s = sigmoid_of_power(z * fmaf(-2 * kA * kC * kLog2E, square, -2 * kA * kLog2E));
  const float along = z * fmaf(6 * kA * kC, square, 2 * kA);
  return {fmaf(s, fmaf(-s, along, along), s), s * z};
}

constexpr int kPacks = kPanel / 8;  // of eight columns of a piece
using PackSums = float2[kPacks];    // a thread's two columns of each

/// Of two values the one that the lane keeps, plus what its partner gives.
__device__ inline float2 halve(float2 lower, float2 upper, bool keeps_upper, int partner) {
  const float2 kept = keeps_upper ? upper : lower;
  const float2 given = keeps_upper ? lower : upper;
  return float2{kept.x + __shfl_xor_sync(0xFFFFFFFFU, given.x, partner),
                kept.y + __shfl_xor_sync(0xFFFFFFFFU, given.y, partner)};
}

/// Sums over the warp's rows of columns 2 i and 2 i + 1 of the piece, in lane i. Lanes that hold
/// the same columns halve the packs that they are left with, three times.
__device__ inline float2 gather(PackSums& left) {
  constexpr int kLanes = 4;  // with columns of one pack
#pragma unroll
  for (int packs = kPacks / 2; packs > 0; packs /= 2) {
    const int partner = packs * kLanes;
#pragma unroll
    for (int i = 0; i < packs; ++i) {
      left[i] = halve(left[i], left[i + packs], (threadIdx.x & partner) != 0, partner);
    }
  }
  return left[0];
}

/// Pieces hold halves of tiles: the pre-activation, then the result; with kActivates also gelu of
/// the pre-activation, which takes its place in the device's memory.
template <bool kActivates>
struct GradientFinish {
  static constexpr auto kRowsOfWeight = hopper::RowsOf::sum;
  static constexpr int kPieces = kActivates ? 2 * kHalves : kHalves;
  using Memory = Shared<kPieces>;

  struct Args {
    float* partial;
    std::int64_t rows;
    std::int64_t features;
  };

  __device__ GradientFinish(const Args& /*args*/, int /*column*/) {}

  __device__ void operator()(Memory& shared, int group, const Sums& sums) const {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      // The groups take turns, and so do the phases of the barrier.
      hopper::wait(&shared.arrived[half], static_cast<std::uint32_t>(group));
      PackSums columns = {};
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        finish(shared.pieces[half], block, &sums[block][half * kPanel / 2], columns);
      }
      const int warp = static_cast<int>(threadIdx.x) / kWarp % kGroupWarps;
      shared.sums[half][warp][threadIdx.x % kWarp] = gather(columns);
      hopper::fence_writes();
      tell(&shared.written[half]);
    }
  }

  /// 16 rows of the warp: sums become results in place of the pre-activation, and those of the
  /// results' columns grow. All is read before anything is computed, so that nobody waits for
  /// single matrices.
  __device__ static void finish(Piece& piece, int block, const float* sums, PackSums& columns) {
    constexpr int kReads = 4;  // of 16 columns
    std::uint32_t x[kReads][4];
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      hopper::load_matrices(matrix_at(piece, block, 2 * i), x[i]);
    }
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      std::uint32_t y[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float* const pair = sums + (i * 4 + k) * 2;
        const Gelu low = gelu_at(low_of(x[i][k]));
        const Gelu high = gelu_at(high_of(x[i][k]));
        const float first = pair[0] * low.slope;
        const float second = pair[1] * high.slope;
        x[i][k] = pair_of(first, second);
        columns[2 * i + k / 2].x += first;
        columns[2 * i + k / 2].y += second;
        y[k] = pair_of(low.value, high.value);
      }
      const std::uint32_t address = matrix_at(piece, block, 2 * i);
      hopper::store_matrices(address, x[i]);
      if constexpr (kActivates) {
        hopper::store_matrices(address + static_cast<std::uint32_t>(kHalves * sizeof(Piece)), y);
      }
    }
  }

  /// The pre-activation, if there is such a tile.
  __device__ static void bring(
      Memory& shared, const Maps& maps, const Schedule& schedule, int tile, int half) {
    if (!schedule.has(tile)) {
      return;
    }
    hopper::expect(&shared.arrived[half], sizeof(Piece));
    hopper::load_box(&shared.pieces[half],
                     maps.pre,
                     &shared.arrived[half],
                     schedule.column(tile) + half * kPanel,
                     schedule.row(tile));
  }

  /// Results, until they have been read.
  __device__ static void send(
      Memory& shared, const Maps& maps, const Schedule& schedule, int tile, int half) {
    const int column = schedule.column(tile) + half * kPanel;
    const int row = schedule.row(tile);
    hopper::store_box(&shared.pieces[half], maps.out, column, row);
    if constexpr (kActivates) {
      hopper::store_box(&shared.pieces[kHalves + half], maps.pre, column, row);
    }
    hopper::wait_stored();
  }

  __device__ static void carry(Memory& shared, const Maps& maps, const Schedule& schedule) {
    std::uint32_t parity = 0;
    int tile = schedule.first();
    for (int half = 0; half < kHalves; ++half) {
      bring(shared, maps, schedule, tile, half);
    }
    while (schedule.has(tile)) {
      const int next = schedule.next(tile);
      for (int half = 0; half < kHalves; ++half) {
        hopper::wait(&shared.written[half], parity);
        send(shared, maps, schedule, tile, half);
        hopper::wait(&shared.seen[half], parity);
        bring(shared, maps, schedule, next, half);
      }
      parity ^= 1U;
      tile = next;
    }
  }

  /// A warp: adds the sums of a half's columns, two a thread, and writes them.
  __device__ static void watch(Memory& shared,
                               const Args& args,
                               int half,
                               const Schedule& schedule) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    std::uint32_t parity = 0;
    for (int tile = schedule.first(); schedule.has(tile); tile = schedule.next(tile)) {
      hopper::wait(&shared.written[half], parity);
      parity ^= 1U;
      float2 sums{0, 0};
#pragma unroll
      for (int warp = 0; warp < kGroupWarps; ++warp) {
        const float2 part = shared.sums[half][warp][lane];
        sums.x += part.x;
        sums.y += part.y;
      }
      tell(&shared.seen[half]);
      const std::int64_t row = schedule.row(tile);
      const std::int64_t column = schedule.column(tile) + half * kPanel + lane * 2;
      if (row < args.rows && column < args.features) {
        *reinterpret_cast<float2*>(args.partial + row / kRows * args.features + column) = sums;
      }
    }
  }
};

cudaError_t launch(const GeluGradient& args, cudaStream_t stream) {
  Maps maps{};
  if (!describe(maps.a, args.g_mo, args.rows, args.in, kRows) ||
      !describe(maps.weight, args.weight_of, args.in, args.features, kDepth) ||
      !describe(maps.pre, args.pre_mf, args.rows, args.features, kRows) ||
      !describe(maps.out, args.out_mf, args.rows, args.features, kRows)) {
    return cudaErrorNotSupported;
  }
  const auto go = [&]<bool kActivates>() {
    return start<GradientFinish<kActivates>>(maps,
                                             {args.partial_pf, args.rows, args.features},
                                             args.rows,
                                             args.in,
                                             args.features,
                                             stream);
  };
  return args.activates ? go.operator()<true>() : go.operator()<false>();
}

}  // namespace

}  // namespace product_tiles

bool takes_gelu_gradient(int device, std::int64_t rows, std::int64_t features) {
  return product_tiles::takes(device, rows, features);
}

std::int64_t gelu_gradient_parts(std::int64_t rows) {
  return product_tiles::parts_of(rows, product_tiles::kRows);
}

cudaError_t launch_gelu_gradient(const GeluGradient& args, cudaStream_t stream) {
  return product_tiles::launch(args, stream);
}

}  // namespace colossal::kernels::cuda
