// Attention of new tokens over cached ones: a block for each q head of each new token goes over the
// keys it sees in tiles, a key a thread for the scores, an element a thread for the context.
#include "nn/kernels/cuda/cached_attention_launch.hpp"
#include "nn/kernels/cuda/math.cuh"
#include "nn/kernels/cuda/team.cuh"

namespace colossal::kernels::cuda {

namespace {

constexpr int kThreads = 128;

/// Where things are; T is float or double.
template <class T>
struct View {
  const T* qkv;
  T* keys;
  T* values;
  T* context;
};

/// Elements of one token in qkv.
__device__ inline std::int64_t width_of(const CachedAttention& a) {
  return (a.num_heads + 2 * a.num_kv_heads) * a.head_dim;
}

/// A block a (row, new token): its keys and values go behind those of its slot.
template <class T>
__global__ void append_kernel(CachedAttention a, View<T> view) {
  const std::int64_t row = blockIdx.x / a.tokens;
  const std::int64_t token = blockIdx.x % a.tokens;
  const std::int64_t size = a.num_kv_heads * a.head_dim;
  const T* const k = view.qkv + blockIdx.x * width_of(a) + a.num_heads * a.head_dim;
  const std::int64_t place = a.lengths[row] + token;
  const std::int64_t slot = a.slots[row] * size * a.capacity;
  for (std::int64_t i = threadIdx.x; i < size; i += blockDim.x) {
    view.keys[slot + i * a.capacity + place] = k[i];
    const std::int64_t head = i / a.head_dim;
    view.values[slot + (head * a.capacity + place) * a.head_dim + i % a.head_dim] = k[size + i];
  }
}

template <class T>
__device__ inline T block_max(T x, int turn) {
  __shared__ T shared[2][kThreads / kWarp];
  x = warp_max(x);
  if (threadIdx.x % kWarp == 0) {
    shared[turn % 2][threadIdx.x / kWarp] = x;
  }
  __syncthreads();
  for (int w = 0; w < kThreads / kWarp; ++w) {
    const T other = shared[turn % 2][w];
    x = other > x || other != other ? other : x;
  }
  return x;
}

/// Scores of keys so far: the largest, and the sum of exp(score - top).
template <class T>
struct Running {
  T top;
  T sum;
};

/// What a block works on.
template <class T>
struct Head {
  const T* keys;
  const T* values;
  std::int64_t capacity;
  std::int64_t head_dim;
  std::int64_t visible;  // keys that the token sees
  T* q;                  // shared memory from here on
  T* context;
  T* weights;  // kThreads
};

/// Keys [base, base + kThreads), as far as they are visible, join the running context.
template <class T>
__device__ inline Running<T> add_tile(const Head<T>& h,
                                      std::int64_t base,
                                      const Running<T>& before,
                                      int turn) {
  const std::int64_t j = base + threadIdx.x;
  const bool has_key = j < h.visible;
  T score = 0;
  for (std::int64_t d = 0; has_key && d < h.head_dim; ++d) {
    score = fma(h.q[d], h.keys[d * h.capacity + j], score);
  }
  // A thread without a key repeats the first one of the tile in place of a number for infinity.
  h.weights[threadIdx.x] = score;
  __syncthreads();
  const T tile_top = block_max(has_key ? score : h.weights[0], turn);
  const T top = base == 0 || tile_top > before.top || tile_top != tile_top ? tile_top : before.top;
  const T weight = has_key ? Exact::exp(score - top) : T(0);
  const T shrink = base == 0 ? T(0) : Exact::exp(before.top - top);
  h.weights[threadIdx.x] = weight;
  const T sum = before.sum * shrink + team_sum(weight, turn);  // its barrier shows all weights
  const std::int64_t count = h.visible - base < kThreads ? h.visible - base : kThreads;
  for (std::int64_t d = threadIdx.x; d < h.head_dim; d += kThreads) {
    T mixed = h.context[d] * shrink;
    for (std::int64_t i = 0; i < count; ++i) {
      mixed = fma(h.weights[i], h.values[(base + i) * h.head_dim + d], mixed);
    }
    h.context[d] = mixed;
  }
  __syncthreads();  // weights are written again
  return {top, sum};
}

/// Dynamic shared memory: q and the running context, head_dim elements each, then kThreads weights.
template <class T>
__global__ void attend_kernel(CachedAttention a, View<T> view) {
  extern __shared__ double memory[];
  T* const shared = reinterpret_cast<T*>(memory);
  const std::int64_t row = blockIdx.x / a.tokens;
  const std::int64_t head = blockIdx.y;
  const std::int64_t kv = head / (a.num_heads / a.num_kv_heads);
  const std::int64_t slot = (a.slots[row] * a.num_kv_heads + kv) * a.head_dim * a.capacity;
  const Head<T> h{view.keys + slot,
                  view.values + slot,
                  a.capacity,
                  a.head_dim,
                  a.lengths[row] + blockIdx.x % a.tokens + 1,
                  shared,
                  shared + a.head_dim,
                  shared + 2 * a.head_dim};
  const T scale = T(1) / sqrt(static_cast<T>(a.head_dim));
  for (std::int64_t d = threadIdx.x; d < a.head_dim; d += kThreads) {
    h.q[d] = view.qkv[blockIdx.x * width_of(a) + head * a.head_dim + d] * scale;
    h.context[d] = 0;
  }
  __syncthreads();
  Running<T> running{0, 0};
  int turn = 0;
  for (std::int64_t base = 0; base < h.visible; base += kThreads) {
    running = add_tile(h, base, running, turn++);
  }
  T* const out = view.context + (blockIdx.x * a.num_heads + head) * a.head_dim;
  for (std::int64_t d = threadIdx.x; d < a.head_dim; d += kThreads) {
    out[d] = h.context[d] / running.sum;
  }
}

}  // namespace

cudaError_t launch_cached_attention(ElementType type,
                                    const CachedAttention& args,
                                    cudaStream_t stream) {
  if (args.rows * args.tokens == 0) {
    return cudaSuccess;
  }
  return with_wide(type, [&]<class T>(T) {
    const View<T> view{static_cast<const T*>(args.qkv),
                       static_cast<T*>(args.keys),
                       static_cast<T*>(args.values),
                       static_cast<T*>(args.context)};
    const auto tokens = static_cast<unsigned>(args.rows * args.tokens);
    const auto bytes = static_cast<std::size_t>(2 * args.head_dim + kThreads) * sizeof(T);
    append_kernel<T><<<tokens, kThreads, 0, stream>>>(args, view);
    attend_kernel<T>
        <<<dim3(tokens, static_cast<unsigned>(args.num_heads)), kThreads, bytes, stream>>>(args,
                                                                                           view);
    return cudaGetLastError();
  });
}

}  // namespace colossal::kernels::cuda
