// A product whose result goes back through gelu_tanh before it is written, and whose columns are
// summed on the way. Two blocks form a cluster and share the tiles of the weight. In a block one
// thread copies into shared memory, one copies results out of it, two warps sum the columns of
// results, and two groups of four warps multiply 64 rows each: all but slopes goes on beside the
// products of the next tile.
#include "nn/kernels/cuda/gelu_gradient_launch.hpp"
#include "nn/kernels/cuda/gelu_gradient_tiles.cuh"

#include <vector>

namespace colossal::kernels::cuda {

namespace gelu_tiles {

namespace {

/// Slope of gelu_tanh at z: h (1 + (1 - t) z (2 a + 6 a c z^2) / 2) with u = a z (1 + c z^2), t =
/// tanh(u), h = (1 + t) / 2. The hardware's tanh is off by 2^-11 of its value at most, which moves
/// the slope by less than 0.003 where |z| <= 3: as much as its rounding to bf16 where it is near 1,
/// more than that where it is near 0.
__device__ inline float slope_at(float z) {
  constexpr float kA = 0.79788456080286535588F;
  constexpr float kC = 0.044715F;
  const float square = z * z;
  const float u = z * fmaf(kA * kC, square, kA);
  float t = 0;
  asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(u));
  const float h = fmaf(0.5F, t, 0.5F);
  const float along = z * fmaf(3 * kA * kC, square, kA);
  return fmaf(h, fmaf(-t, along, along), h);
}

/// Two sums times the slopes at two elements of 16 bits, rounded.
__device__ inline std::uint32_t sloped(float low, float high, std::uint32_t pre) {
  const __nv_bfloat162 pair =
      __floats2bfloat162_rn(low * slope_at(low_of(pre)), high * slope_at(high_of(pre)));
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// The group's rows of half a tile: sums become results in place of the pre-activation. An 8 x 8
/// matrix lies in the registers of a warp as a product leaves it.
template <int kHalf>
__device__ inline void finish(Half& half, int group, const float (&sums)[hopper::kSums]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp % 4;
  const int row = group * (kRows / 2) + warp * 16 + lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
  for (int panel = 0; panel < kHalfPanels; ++panel) {
    const std::uint32_t at = hopper::shared_address(half.panels[panel][row]);
#pragma unroll
    for (int pack = 0; pack < 8; pack += 2) {
      const std::uint32_t address =
          at + static_cast<std::uint32_t>(((pack + lane / 16) ^ (lane % 8)) * 16);
      const int sum = ((kHalf * kHalfPanels + panel) * 8 + pack) * 4;
      std::uint32_t x[4];
      hopper::load_matrices(address, x);
      x[0] = sloped(sums[sum], sums[sum + 1], x[0]);
      x[1] = sloped(sums[sum + 2], sums[sum + 3], x[1]);
      x[2] = sloped(sums[sum + 4], sums[sum + 5], x[2]);
      x[3] = sloped(sums[sum + 6], sums[sum + 7], x[3]);
      hopper::store_matrices(address, x);
    }
  }
}

/// The same when the pre-activation is there, told to those who wait for the result.
template <int kHalf>
__device__ inline void finish_half(Shared& shared,
                                   const Turn& turn,
                                   int group,
                                   const float (&sums)[hopper::kSums]) {
  hopper::wait(&shared.full[turn.stage], turn.parity);
  finish<kHalf>(shared.stages[turn.stage].half, group, sums);
  hopper::fence_writes();
  __syncwarp();
  if (threadIdx.x % kWarp == 0) {
    hopper::arrive(&shared.written[kHalf]);
  }
}

/// Four warps: one step of their 64 rows.
__device__ inline void multiply_step(Operands& from,
                                     int group,
                                     bool adds,
                                     float (&sums)[hopper::kSums]) {
  constexpr std::uint32_t kPanelBytes = sizeof(Operands::weight) / kPanels;
  constexpr int kOnce = 16;  // columns of a and rows of b in one instruction
  const std::uint32_t a = hopper::shared_address(from.g[group * (kRows / 2)]);
  const std::uint32_t b = hopper::shared_address(from.weight);
  hopper::begin_products();
#pragma unroll
  for (std::uint32_t k = 0; k < kDepth / kOnce; ++k) {
    hopper::multiply(sums,
                     hopper::tile_at(a + k * kOnce * 2, 16),
                     hopper::tile_at(b + k * kOnce * kPanel * 2, kPanelBytes),
                     adds || k > 0);
  }
  hopper::commit_products();
}

/// The warp's arrival.
__device__ inline void release_by_warp(Shared& shared, int stage) {
  if (threadIdx.x % kWarp == 0) {
    release(shared, stage);
  }
}

/// Four warps: the sums of their 64 rows of a tile. The products of one step are under way while
/// those of the next begin.
__device__ inline void multiply_tile(
    Shared& shared, Turn& turn, int group, int steps, float (&sums)[hopper::kSums]) {
  int last = 0;
  hopper::pin(sums);
  for (int step = 0; step < steps; ++step) {
    hopper::wait(&shared.full[turn.stage], turn.parity);
    multiply_step(shared.stages[turn.stage].operands, group, step > 0, sums);
    if (step > 0) {
      hopper::wait_products<1>();
      release_by_warp(shared, last);
    }
    last = turn.stage;
    turn.advance();
  }
  hopper::wait_products<0>();
  hopper::pin(sums);
  release_by_warp(shared, last);
}

/// Four warps: 64 rows of each tile.
__device__ inline void multiply_tiles(Shared& shared, int group, const Schedule& schedule) {
  float sums[hopper::kSums];
  Turn turn;
  for (int tile = schedule.first(); schedule.has(tile); tile = schedule.next(tile)) {
    multiply_tile(shared, turn, group, schedule.steps, sums);
    finish_half<0>(shared, turn, group, sums);
    turn.advance();
    finish_half<1>(shared, turn, group, sums);
    turn.advance();
  }
}

__device__ inline void init_barriers(Shared& shared) {
  for (int stage = 0; stage < kStages; ++stage) {
    hopper::init(&shared.full[stage], 1);
    hopper::init(&shared.empty[stage], kCluster * kReleases);
  }
  for (hopper::Barrier& written : shared.written) {
    hopper::init(&written, kProductWarps);
  }
  hopper::publish_barriers();
}

__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    gelu_gradient_kernel(const __grid_constant__ Maps maps,
                         float* partial,
                         std::int64_t rows,
                         std::int64_t features,
                         Schedule schedule) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char memory[];
  const std::uint32_t begin = hopper::shared_address(memory);
  Shared& shared =
      *reinterpret_cast<Shared*>(memory + (kAlignment - begin % kAlignment) % kAlignment);
  if (threadIdx.x == 0) {
    init_barriers(shared);
  }
  hopper::cluster_sync();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (warp < 4) {
    hopper::shrink_registers<kHelperRegisters>();
    const bool one = threadIdx.x % kWarp == 0;
    if (warp == 0 && one) {
      copy_in(shared, maps, schedule);
    } else if (warp == 1 && one) {
      copy_out(shared, maps, schedule);
    } else if (warp >= 2) {
      sum_columns(shared, partial, rows, features, schedule);
    }
    __syncwarp();
  } else {
    hopper::grow_registers<kProductRegisters>();
    multiply_tiles(shared, warp / 4 - 1, schedule);
  }
  hopper::cluster_sync();  // nobody goes while the other one may still write here
#endif
}

using Encode = CUresult (*)(CUtensorMap*,
                            CUtensorMapDataType,
                            cuuint32_t,
                            void*,
                            const cuuint64_t*,
                            const cuuint64_t*,
                            const cuuint32_t*,
                            const cuuint32_t*,
                            CUtensorMapInterleave,
                            CUtensorMapSwizzle,
                            CUtensorMapL2promotion,
                            CUtensorMapFloatOOBfill);

/// The driver's function; null where it has none.
Encode encoder() {
  static const Encode found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    constexpr unsigned kVersion = 12000;  // the first that has it
    const cudaError_t status = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, kVersion, cudaEnableDefault, &result);
    return status == cudaSuccess && result == cudaDriverEntryPointSuccess
               ? reinterpret_cast<Encode>(function)
               : nullptr;
  }();
  return found;
}

/// A matrix of bf16 that is copied in boxes of kPanel columns.
bool describe(CUtensorMap& map,
              const void* data,
              std::int64_t rows,
              std::int64_t columns,
              std::uint32_t box_rows) {
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t stride_bytes[1] = {static_cast<cuuint64_t>(columns) * 2};
  const cuuint32_t box[2] = {kPanel, box_rows};
  const cuuint32_t steps[2] = {1, 1};
  return encoder() != nullptr && encoder()(&map,
                                           CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                           2,
                                           const_cast<void*>(data),
                                           sizes,
                                           stride_bytes,
                                           box,
                                           steps,
                                           CU_TENSOR_MAP_INTERLEAVE_NONE,
                                           CU_TENSOR_MAP_SWIZZLE_128B,
                                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/// Clusters that the current device has room for beside each other: more would wait for the end of
/// others. Not all processors have a neighbour that is free.
cudaError_t count_clusters(int& clusters) {
  cudaError_t status = cudaFuncSetAttribute(
      gelu_gradient_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (status != cudaSuccess) {
    return status;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kCluster);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kSharedBytes;
  cudaLaunchAttribute size{};
  size.id = cudaLaunchAttributeClusterDimension;
  size.val.clusterDim.x = kCluster;
  size.val.clusterDim.y = 1;
  size.val.clusterDim.z = 1;
  config.attrs = &size;
  config.numAttrs = 1;
  return cudaOccupancyMaxActiveClusters(&clusters, gelu_gradient_kernel, &config);
}

/// The same, asked once a device and thread: it takes longer than a launch.
cudaError_t clusters_at_once(int& clusters) {
  thread_local std::vector<int> known;
  int device = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) {
    return status;
  }
  const auto at = static_cast<std::size_t>(device);
  known.resize(at < known.size() ? known.size() : at + 1);
  if (known[at] == 0) {
    status = count_clusters(known[at]);
  }
  clusters = known[at];
  return status;
}

constexpr std::int64_t parts_of(std::int64_t size, std::int64_t part) {
  return (size + part - 1) / part;
}

bool takes(int device, std::int64_t rows, std::int64_t in, std::int64_t features) {
  int major = 0;
  int minor = 0;
  int processors = 0;
  const bool known =
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) == cudaSuccess;
  constexpr std::int64_t kRounds = 2;  // of tiles on every processor
  // Two steps a tile at least: a half of the ring that holds results is filled again no sooner than
  // the step after next, when all have seen it written.
  return known && major == 9 && minor == 0 && in > kDepth &&
         parts_of(rows, kRows) * parts_of(features, kColumns) >= kRounds * processors;
}

cudaError_t start(const GeluGradient& args, cudaStream_t stream) {
  Maps maps{};
  if (!describe(maps.g, args.g_mo, args.rows, args.in, kRows) ||
      !describe(maps.weight, args.weight_of, args.in, args.features, kDepth) ||
      !describe(maps.pre, args.pre_mf, args.rows, args.features, kRows) ||
      !describe(maps.out, args.out_mf, args.rows, args.features, kRows)) {
    return cudaErrorNotSupported;
  }
  const Schedule schedule{static_cast<int>(parts_of(args.rows, kCluster * kRows)),
                          static_cast<int>(parts_of(args.features, kColumns)),
                          static_cast<int>(parts_of(args.in, kDepth))};
  int clusters = 0;
  const cudaError_t status = clusters_at_once(clusters);
  if (status != cudaSuccess || clusters == 0) {  // a part of a card may have no neighbours
    return status != cudaSuccess ? status : cudaErrorNotSupported;
  }
  const int most = schedule.pairs_of_rows * schedule.columns;
  const auto blocks = static_cast<unsigned>((clusters < most ? clusters : most) * kCluster);
  gelu_gradient_kernel<<<blocks, kThreads, kSharedBytes, stream>>>(
      maps, args.partial_pf, args.rows, args.features, schedule);
  return cudaGetLastError();
}

}  // namespace

}  // namespace gelu_tiles

bool takes_gelu_gradient(int device, std::int64_t rows, std::int64_t in, std::int64_t features) {
  return gelu_tiles::takes(device, rows, in, features);
}

std::int64_t gelu_gradient_parts(std::int64_t rows) {
  return gelu_tiles::parts_of(rows, gelu_tiles::kRows);
}

cudaError_t launch_gelu_gradient(const GeluGradient& args, cudaStream_t stream) {
  return gelu_tiles::start(args, stream);
}

}  // namespace colossal::kernels::cuda
