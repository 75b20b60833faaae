// How are the kernels of product_tiles.cuh started? On the host: descriptions of matrices, and as
// many clusters as run at once.
#pragma once

#include "nn/kernels/cuda/product_tiles.cuh"

#include <vector>

namespace colossal::kernels::cuda::product_tiles {

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
inline Encode encoder() {
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
inline bool describe(CUtensorMap& map,
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
template <class Finish>
cudaError_t count_clusters(int& clusters) {
  cudaError_t status = cudaFuncSetAttribute(
      product_kernel<Finish>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes<Finish>);
  if (status != cudaSuccess) {
    return status;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kCluster);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kSharedBytes<Finish>;
  cudaLaunchAttribute size{};
  size.id = cudaLaunchAttributeClusterDimension;
  size.val.clusterDim.x = kCluster;
  size.val.clusterDim.y = 1;
  size.val.clusterDim.z = 1;
  config.attrs = &size;
  config.numAttrs = 1;
  return cudaOccupancyMaxActiveClusters(&clusters, product_kernel<Finish>, &config);
}

/// The same, asked once a device and thread: it takes longer than a launch.
template <class Finish>
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
    status = count_clusters<Finish>(known[at]);
  }
  clusters = known[at];
  return status;
}

constexpr std::int64_t parts_of(std::int64_t size, std::int64_t part) {
  return (size + part - 1) / part;
}

/// Whether such a kernel runs on this device and has enough work of this size to fill it.
inline bool takes(int device, std::int64_t rows, std::int64_t features) {
  int major = 0;
  int minor = 0;
  int processors = 0;
  const bool known =
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) == cudaSuccess;
  constexpr std::int64_t kRounds = 4;  // of tiles on every processor
  return known && major == 9 && minor == 0 &&
         parts_of(rows, kRows) * parts_of(features, kColumns) >= kRounds * processors;
}

/// The kernel over a result of this size. cudaErrorNotSupported, with nothing done, where no two
/// blocks find room beside each other, as on a part of a card.
template <class Finish>
cudaError_t start(const Maps& maps,
                  const typename Finish::Args& args,
                  std::int64_t rows,
                  std::int64_t in,
                  std::int64_t features,
                  cudaStream_t stream) {
  const Schedule schedule{static_cast<int>(parts_of(rows, kCluster * kRows)),
                          static_cast<int>(parts_of(features, kColumns)),
                          static_cast<int>(parts_of(in, kDepth))};
  int clusters = 0;
  const cudaError_t status = clusters_at_once<Finish>(clusters);
  if (status != cudaSuccess || clusters == 0) {
    return status != cudaSuccess ? status : cudaErrorNotSupported;
  }
  const int most = schedule.pairs_of_rows * schedule.columns;
  const auto blocks = static_cast<unsigned>((clusters < most ? clusters : most) * kCluster);
  product_kernel<Finish><<<blocks, kThreads, kSharedBytes<Finish>, stream>>>(maps, args, schedule);
  return cudaGetLastError();
}

}  // namespace colossal::kernels::cuda::product_tiles
