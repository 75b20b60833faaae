// Which threads share a row? A warp for short rows, several of which are in a block; a whole block
// for long ones. A thread holds up to kHeld packs of its row in registers.
#pragma once

#include "nn/kernels/cuda/element.cuh"

namespace colossal::kernels::cuda {

/// Most threads of a team, and so of a block: kernels promise the compiler that a block of them
/// fits.
inline constexpr int kMostTeam = 1024;

/// Threads of a row and rows of a block.
struct Team {
  int threads = kWarp;
  int rows = 1;
};

/// The team for `packs` packs a row, of which a thread holds `held`.
inline Team team_of(std::int64_t packs, int held) {
  const std::int64_t wanted = (packs + held - 1) / held;
  const std::int64_t warps = (wanted + kWarp - 1) / kWarp;
  const std::int64_t threads = warps * kWarp < kMostTeam ? warps * kWarp : kMostTeam;
  return {static_cast<int>(threads < kWarp ? kWarp : threads), threads <= kWarp ? 4 : 1};
}

/// Two sums over the team, in every thread of it. `turn`: a counter that goes up by one with every
/// call, the same in all threads; calls with odd and even turns use different memory, so that one
/// barrier a call is enough.
template <class T>
__device__ inline void team_sum(T& a, T& b, int turn) {
  a = warp_sum(a);
  b = warp_sum(b);
  if (blockDim.x == kWarp) {
    return;
  }
  __shared__ T shared[2][2][kWarp];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  if (lane == 0) {
    shared[turn % 2][0][warp] = a;
    shared[turn % 2][1][warp] = b;
  }
  __syncthreads();
  a = warp_sum(lane < warps ? shared[turn % 2][0][lane] : T(0));
  b = warp_sum(lane < warps ? shared[turn % 2][1][lane] : T(0));
}

/// One sum over the team.
template <class T>
__device__ inline T team_sum(T a, int turn) {
  T none = 0;
  team_sum(a, none, turn);
  return a;
}

}  // namespace colossal::kernels::cuda
