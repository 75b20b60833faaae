// The instructions of compute capability 9.0 that copy and multiply tiles: bulk copies of tensors,
// barriers in shared memory that count their bytes, products of groups of four warps.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace colossal::kernels::cuda::hopper {

/// Address in shared memory as instructions want it.
__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

using Barrier = std::uint64_t;

__device__ inline void init(Barrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals));
}

/// Makes initialised barriers visible to the cluster and to bulk copies.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ inline void arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

/// At the same barrier of a block of the cluster; for reads that are over. Writes would need a
/// release for the cluster, which waits for the memory of the device.
__device__ inline void arrive_at(Barrier* barrier, int block) {
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(shared_address(barrier)),
      "r"(block)
      : "memory");
}

/// Arrives and says how many bytes come by copies.
__device__ inline void expect(Barrier* barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

/// Until the phase of this parity is over; that before the first one is.
__device__ inline void wait(Barrier* barrier, std::uint32_t parity) {
  asm volatile(
      "{\n.reg .pred over;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
      "@over bra done;\n"
      "bra again;\n"
      "done:\n}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

/// All threads of all blocks of the cluster.
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

__device__ inline int rank_in_cluster() {
  std::uint32_t rank = 0;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

/// What ordinary instructions wrote to shared memory becomes visible to copies and products.
__device__ inline void fence_writes() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// A box of a matrix to shared memory; its bytes count for the barrier.
__device__ inline void load_box(
    void* to, const CUtensorMap& map, Barrier* barrier, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(to)),
      "l"(&map),
      "r"(shared_address(barrier)),
      "r"(column),
      "r"(row)
      : "memory");
}

/// The same to all blocks of `blocks`, at the same place and for the same barrier of each.
__device__ inline void load_box_to(
    std::uint16_t blocks, void* to, const CUtensorMap& map, Barrier* barrier, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
      "l"(&map),
      "r"(shared_address(barrier)),
      "r"(column),
      "r"(row),
      "h"(blocks)
      : "memory");
}

/// A box from shared memory to a matrix; what lies outside the matrix is not written.
__device__ inline void store_box(const void* from, const CUtensorMap& map, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
      "r"(shared_address(from)),
      "r"(column),
      "r"(row)
      : "memory");
}

/// Until the boxes that this thread stores have been read.
__device__ inline void wait_stored() {
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
}

/// Registers of a thread from here on, in all warps of a group of four.
template <int kCount>
__device__ inline void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ inline void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

/// Four 8 x 8 matrices of 16 bits whose rows of 16 bytes begin where the lanes say.
__device__ inline void load_matrices(std::uint32_t address, std::uint32_t (&x)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}
__device__ inline void store_matrices(std::uint32_t address, const std::uint32_t (&x)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(x[0]),
               "r"(x[1]),
               "r"(x[2]),
               "r"(x[3])
               : "memory");
}

/// A tile as products read it, in rows of 128 bytes that bulk copies have swizzled. `apart`: bytes
/// between panels of 64 columns, where the rows are those of the sum; any where they are those of
/// the result.
__device__ inline std::uint64_t tile_at(std::uint32_t address, std::uint32_t apart) {
  constexpr std::uint64_t kSwizzled = std::uint64_t{1} << 62U;
  constexpr std::uint64_t kEightRows = std::uint64_t{1024 >> 4U} << 32U;
  return kSwizzled | kEightRows | (std::uint64_t{apart >> 4U} << 16U) |
         ((address & 0x3FFFFU) >> 4U);
}

inline constexpr int kSums = 64;  ///< of a thread of a 64 x 128 product

/// Keeps the compiler from moving what it does with the sums into or out of a product under way.
__device__ inline void pin(float (&sums)[kSums]) {
#pragma unroll
  for (float& sum : sums) {
    asm volatile("" : "+f"(sum)::"memory");
  }
}

__device__ inline void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Until at most kLast groups of products are under way.
template <int kLast>
__device__ inline void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLast) : "memory");
}

/// Which index the rows of an operand in shared memory are.
enum class RowsOf { result, sum };

// clang-format off
#define COLOSSAL_SUMS_8(i)                                                            \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define COLOSSAL_SUMS_32(i) \
  COLOSSAL_SUMS_8(i), COLOSSAL_SUMS_8(i + 8), COLOSSAL_SUMS_8(i + 16), COLOSSAL_SUMS_8(i + 24)
/// d = a b, or d += a b if `adds`: 64 rows of a and 16 columns, 16 rows of b and 128 columns, bf16.
/// Rows of a are those of the result.
template <RowsOf kRowsOfB>
__device__ inline void multiply(float (&d)[kSums], std::uint64_t a, std::uint64_t b, bool adds) {
  asm volatile(
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, adds, 1, 1, 0, %67;\n}"
      : COLOSSAL_SUMS_32(0), COLOSSAL_SUMS_32(32)
      : "l"(a), "l"(b), "r"(static_cast<int>(adds)), "n"(kRowsOfB == RowsOf::sum ? 1 : 0));
}
#undef COLOSSAL_SUMS_32
#undef COLOSSAL_SUMS_8
// clang-format on

}  // namespace colossal::kernels::cuda::hopper
