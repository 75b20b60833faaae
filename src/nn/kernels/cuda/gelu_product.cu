// A product with a bias that also goes through gelu_tanh: both what comes in there and what comes
// out are written.
#include "nn/kernels/cuda/gelu_product_launch.hpp"
#include "nn/kernels/cuda/product_start.cuh"

namespace colossal::kernels::cuda {

namespace product_tiles {

namespace {

/// gelu_tanh(z) = z / (1 + exp(-2 a z (1 + c z^2))).
__device__ inline float gelu_at(float z) {
  constexpr float kA = 0.79788456080286535588F;
  constexpr float kC = 0.044715F;
  constexpr float kLog2E = 1.4426950408889634074F;
  return z * sigmoid_of_power(z * fmaf(-2 * kA * kC * kLog2E, z * z, -2 * kA * kLog2E));
}

/// One piece holds half a tile before gelu, the other the same after it.
struct GeluFinish {
  static constexpr auto kRowsOfWeight = hopper::RowsOf::result;
  static constexpr int kPieces = 2;
  static constexpr int kPairs = kColumns / 8;  // of columns of a thread

  struct Args {
    const std::uint32_t* bias;  // two columns each
    std::int64_t features;
  };

  std::uint32_t bias[kPairs];

  /// Fetches the bias, which waits in registers while the tile is multiplied.
  __device__ GeluFinish(const Args& args, int column) {
    const std::int64_t own = column + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const std::int64_t at = own + i * 8;
      bias[i] = at < args.features ? __ldg(args.bias + at / 2) : 0;
    }
  }

  __device__ void operator()(SharedOf<GeluFinish>& shared, int /*group*/, const Sums& sums) const {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      // Phases are halves of tiles: the one before must have been copied.
      hopper::wait(&shared.seen[0], static_cast<std::uint32_t>(half ^ 1));
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        finish_rows(shared.pieces[0], block, &sums[block][half * kPanel / 2], &bias[half * 8]);
      }
      hopper::fence_writes();
      tell(&shared.written[0]);
    }
  }

  /// 16 rows of the warp.
  __device__ static void finish_rows(Piece& piece,
                                     int block,
                                     const float* sums,
                                     const std::uint32_t* bias) {
#pragma unroll
    for (int pack = 0; pack < 8; pack += 2) {
      finish(matrix_at(piece, block, pack), sums + pack * 4, bias + pack);
    }
  }

  /// Four matrices of both pieces.
  __device__ static void finish(std::uint32_t address,
                                const float* sums,
                                const std::uint32_t* bias) {
    std::uint32_t pre[4];
    std::uint32_t out[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float low = sums[2 * i] + low_of(bias[i / 2]);
      const float high = sums[2 * i + 1] + high_of(bias[i / 2]);
      pre[i] = pair_of(low, high);
      out[i] = pair_of(gelu_at(low), gelu_at(high));
    }
    hopper::store_matrices(address, pre);
    hopper::store_matrices(address + static_cast<std::uint32_t>(sizeof(Piece)), out);
  }

  __device__ static void carry(SharedOf<GeluFinish>& shared,
                               const Maps& maps,
                               const Schedule& schedule) {
    for (int tile = schedule.first(); schedule.has(tile); tile = schedule.next(tile)) {
      const int row = schedule.row(tile);
      for (int half = 0; half < kHalves; ++half) {
        const int column = schedule.column(tile) + half * kPanel;
        hopper::wait(&shared.written[0], static_cast<std::uint32_t>(half));
        hopper::store_box(&shared.pieces[0], maps.pre, column, row);
        hopper::store_box(&shared.pieces[1], maps.out, column, row);
        hopper::wait_stored();
        hopper::arrive(&shared.seen[0]);
      }
    }
  }

  __device__ static void watch(SharedOf<GeluFinish>& /*shared*/,
                               const Args& /*args*/,
                               int /*half*/,
                               const Schedule& /*schedule*/) {}
};

cudaError_t launch(const GeluProduct& args, cudaStream_t stream) {
  Maps maps{};
  if (!describe(maps.a, args.x_mi, args.rows, args.in, kRows) ||
      !describe(maps.weight, args.weight_fi, args.features, args.in, kPanel) ||
      !describe(maps.pre, args.pre_mf, args.rows, args.features, kRows) ||
      !describe(maps.out, args.out_mf, args.rows, args.features, kRows)) {
    return cudaErrorNotSupported;
  }
  return start<GeluFinish>(maps,
                           {static_cast<const std::uint32_t*>(args.bias_f), args.features},
                           args.rows,
                           args.in,
                           args.features,
                           stream);
}

}  // namespace

}  // namespace product_tiles

bool takes_gelu_product(int device, std::int64_t rows, std::int64_t features) {
  return product_tiles::takes(device, rows, features);
}

cudaError_t launch_gelu_product(const GeluProduct& args, cudaStream_t stream) {
  return product_tiles::launch(args, stream);
}

}  // namespace colossal::kernels::cuda
