// One kernel for all rules: a block takes kBlock elements of a slice, a thread four at a time.
#include "optim/detail/cuda/rules.cuh"

namespace colossal::detail::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;

/// The four elements of a group, array by array.
template <class T>
struct Loaded {
  T param[kGroup];
  T states[2][kGroup];
  T grad[kGroup];
};

template <class Rule, class T>
__device__ inline void load(const FlatArrays& arrays, const Group& group, Loaded<T>& x) {
  constexpr Uses kUses = Rule::uses();
  if constexpr (kUses.param) {
    read(arrays.master, group, x.param);
  }
  if constexpr (kUses.grad) {
    read(arrays.grad, group, x.grad);
  }
  if constexpr (kUses.states) {
    read(arrays.states[0], group, x.states[0]);
    read(arrays.states[1], group, x.states[1]);
  }
}

template <class Rule, class T>
__device__ inline void store(const FlatArrays& arrays,
                             const Group& group,
                             const FlatSlice& slice,
                             Loaded<T>& x) {
  constexpr Uses kUses = Rule::uses();
  if constexpr (kUses.writes_states) {
    write_state(arrays.states[0], group, slice, 0, x.states[0]);
    write_state(arrays.states[1], group, slice, 16, x.states[1]);
  }
  if constexpr (kUses.writes_param) {
    write(arrays.master, group, x.param);
    write(arrays.working, group, x.param);
  }
}

/// Sum over the block in fp64, in thread 0.
__device__ inline double block_sum(double x) {
  __shared__ double shared[kThreads / kWarp];
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFFU, x, offset);
  }
  __syncthreads();  // a sum before this one has been read
  if (threadIdx.x % kWarp == 0) {
    shared[threadIdx.x / kWarp] = x;
  }
  __syncthreads();
  double total = 0;
  for (int w = 0; threadIdx.x == 0 && w < kThreads / kWarp; ++w) {
    total += shared[w];
  }
  return total;
}

/// Writes the sums of this block over its threads.
__device__ inline void write_sums(const double (&own)[2], double* of_blocks) {
  for (int i = 0; i < 2; ++i) {
    const double total = block_sum(own[i]);
    if (threadIdx.x == 0) {
      of_blocks[2 * static_cast<std::int64_t>(blockIdx.x) + i] = total;
    }
  }
}

/// One group through the rule; adds the squares of its elements.
template <class Rule, class T>
__device__ inline void carry(const FlatArrays& arrays,
                             const Group& group,
                             const FlatSlice& slice,
                             const Rule& rule,
                             double (&squares)[2]) {
  Loaded<T> x;
  load<Rule>(arrays, group, x);
  for (int i = 0; i < kGroup; ++i) {
    Element<T> e{x.param[i], {x.states[0][i], x.states[1][i]}, x.grad[i]};
    rule.apply(e);
    x.param[i] = e.param;
    x.states[0][i] = e.state[0];
    x.states[1][i] = e.state[1];
  }
  store<Rule>(arrays, group, slice, x);
  if constexpr (Rule::uses().measures) {
    for (int i = 0; i < kGroup; ++i) {
      const Element<T> e{x.param[i], {x.states[0][i], x.states[1][i]}, x.grad[i]};
      const double w = group.has(i) ? static_cast<double>(e.param) : 0;
      const double u = group.has(i) ? static_cast<double>(rule.measured(e)) : 0;
      squares[0] += w * w;
      squares[1] += u * u;
    }
  }
}

template <class Rule, class T>
__global__ void __launch_bounds__(kThreads)
    sweep_kernel(const __grid_constant__ Batch<typename Rule::Factors> batch) {
  int s = 0;
  while (blockIdx.x >= batch.first_block[s + 1]) {
    ++s;
  }
  const FlatSlice& slice = batch.slices[s];
  const Rule rule(batch.factors[s]);
  const std::int64_t end = slice.at + slice.count;
  const std::int64_t block = slice.at / kGroup * kGroup +
                             static_cast<std::int64_t>(blockIdx.x - batch.first_block[s]) * kBlock;
  const std::int64_t stop = block + kBlock < end ? block + kBlock : end;
  double squares[2] = {};
  // Who only measures has nothing but loads to wait for.
#pragma unroll(Rule::uses().writes_param || Rule::uses().writes_states ? 1 : 4)
  for (std::int64_t at = block + threadIdx.x * kGroup; at < stop; at += kThreads * kGroup) {
    const bool whole = batch.arrays.aligned && at >= slice.at && at + kGroup <= end;
    carry<Rule, T>(batch.arrays, {at, slice.at, end, whole}, slice, rule, squares);
  }
  if constexpr (Rule::uses().measures) {
    write_sums(squares, batch.partial);
  }
}

/// A block a slice: the sums of its blocks in a fixed order.
template <class Factors>
__global__ void __launch_bounds__(kThreads)
    add_kernel(const __grid_constant__ Batch<Factors> batch) {
  double sums[2] = {};
  for (std::int64_t b = batch.first_block[blockIdx.x] + threadIdx.x;
       b < batch.first_block[blockIdx.x + 1];
       b += kThreads) {
    sums[0] += batch.partial[2 * b];
    sums[1] += batch.partial[2 * b + 1];
  }
  write_sums(sums, batch.squares);
}

template <class Rule, class T>
cudaError_t start(const Batch<typename Rule::Factors>& batch, cudaStream_t stream) {
  const unsigned blocks = batch.first_block[batch.num_slices];
  if (blocks > 0) {
    sweep_kernel<Rule, T><<<blocks, kThreads, 0, stream>>>(batch);
  }
  if (Rule::uses().measures && batch.num_slices > 0) {
    add_kernel<<<static_cast<unsigned>(batch.num_slices), kThreads, 0, stream>>>(batch);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_adam(const Batch<AdamFactors>& batch, bool fp64, cudaStream_t stream) {
  return fp64 ? start<Adam<double>, double>(batch, stream)
              : start<Adam<float>, float>(batch, stream);
}

cudaError_t launch_lamb_moments(const Batch<LambFactors>& batch, bool fp64, cudaStream_t stream) {
  return fp64 ? start<LambMoments<double>, double>(batch, stream)
              : start<LambMoments<float>, float>(batch, stream);
}

cudaError_t launch_lamb_apply(const Batch<LambFactors>& batch, bool fp64, cudaStream_t stream) {
  return fp64 ? start<LambApply<double>, double>(batch, stream)
              : start<LambApply<float>, float>(batch, stream);
}

cudaError_t launch_sgd(const Batch<SgdFactors>& batch, bool fp64, cudaStream_t stream) {
  if (batch.arrays.states[0].kind == Kind::none) {
    return fp64 ? start<PlainSgd<double>, double>(batch, stream)
                : start<PlainSgd<float>, float>(batch, stream);
  }
  return fp64 ? start<MomentumSgd<double>, double>(batch, stream)
              : start<MomentumSgd<float>, float>(batch, stream);
}

cudaError_t launch_squares(const Batch<Nothing>& batch, bool fp64, cudaStream_t stream) {
  return fp64 ? start<MeasureGrad<double>, double>(batch, stream)
              : start<MeasureGrad<float>, float>(batch, stream);
}

}  // namespace colossal::detail::cuda
