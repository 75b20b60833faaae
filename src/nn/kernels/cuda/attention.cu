// The softmax of plain attention, forward and backward: a warp a row, which knows its visible keys.
#include "nn/kernels/cuda/attention_launch.hpp"
#include "nn/kernels/cuda/math.cuh"

namespace colossal::kernels::cuda {

namespace {

constexpr int kWarps = 4;  // rows of a block

template <class T>
struct Rows {
  T* scores;
  std::int64_t rows;
  std::int64_t sequence;
  std::int64_t rows_of_sample;
  const std::int64_t* starts;
  bool causal;
  T scale;
};

/// Keys [first, end) that a row's query sees.
struct Visible {
  std::int64_t first;
  std::int64_t end;
};

template <class T>
__device__ inline Visible visible_keys(const Rows<T>& a, std::int64_t row) {
  const std::int64_t query = row % a.sequence;
  const std::int64_t sample = row / a.rows_of_sample;
  return {a.starts == nullptr ? 0 : a.starts[sample * a.sequence + query],
          a.causal ? query + 1 : a.sequence};
}

/// The row of this warp.
__device__ inline std::int64_t own_row() {
  return static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.y;
}

template <class T>
__global__ void softmax_kernel(Rows<T> a, T* log_sum) {
  const std::int64_t row = own_row();
  if (row >= a.rows) {
    return;
  }
  T* const z = a.scores + row * a.sequence;
  const Visible keys = visible_keys(a, row);
  T top = z[keys.first] * a.scale;
  for (std::int64_t j = keys.first + threadIdx.x; j < keys.end; j += kWarp) {
    const T score = z[j] * a.scale;
    top = score > top || score != score ? score : top;
  }
  top = warp_max(top);
  T sum = 0;
  for (std::int64_t j = keys.first + threadIdx.x; j < keys.end; j += kWarp) {
    sum += Exact::exp(z[j] * a.scale - top);
  }
  sum = warp_sum(sum);
  const T inverse = T(1) / sum;
  for (std::int64_t j = threadIdx.x; j < a.sequence; j += kWarp) {
    const bool seen = j >= keys.first && j < keys.end;
    z[j] = seen ? Exact::exp(z[j] * a.scale - top) * inverse : T(0);
  }
  if (threadIdx.x == 0) {
    log_sum[row] = top + log(sum);
  }
}

template <class T>
__global__ void slope_kernel(Rows<T> a, const T* log_sum, const T* inner, T* slope) {
  const std::int64_t row = own_row();
  if (row >= a.rows) {
    return;
  }
  T* const z = a.scores + row * a.sequence;
  T* const d = slope + row * a.sequence;
  const Visible keys = visible_keys(a, row);
  const T shift = log_sum[row];
  const T mean = inner[row];
  for (std::int64_t j = threadIdx.x; j < a.sequence; j += kWarp) {
    const bool seen = j >= keys.first && j < keys.end;
    const T p = seen ? Exact::exp(z[j] * a.scale - shift) : T(0);
    z[j] = p;
    d[j] = seen ? p * (d[j] - mean) * a.scale : T(0);
  }
}

template <class T>
Rows<T> rows_of(const ScoreRows& rows) {
  return {static_cast<T*>(rows.scores),
          rows.rows,
          rows.sequence,
          rows.rows_of_sample,
          rows.starts_bs,
          rows.causal,
          static_cast<T>(rows.scale)};
}

unsigned blocks_of(const ScoreRows& rows) {
  return static_cast<unsigned>((rows.rows + kWarps - 1) / kWarps);
}

}  // namespace

cudaError_t launch_softmax(ElementType type,
                           const ScoreRows& rows,
                           void* log_sum,
                           cudaStream_t stream) {
  return with_wide(type, [&]<class T>(T) {
    softmax_kernel<T><<<blocks_of(rows), dim3(kWarp, kWarps), 0, stream>>>(
        rows_of<T>(rows), static_cast<T*>(log_sum));
    return cudaGetLastError();
  });
}

cudaError_t launch_softmax_backward(ElementType type,
                                    const ScoreRows& rows,
                                    const void* log_sum,
                                    const void* inner,
                                    void* slope,
                                    cudaStream_t stream) {
  return with_wide(type, [&]<class T>(T) {
    slope_kernel<T>
        <<<blocks_of(rows), dim3(kWarp, kWarps), 0, stream>>>(rows_of<T>(rows),
                                                              static_cast<const T*>(log_sum),
                                                              static_cast<const T*>(inner),
                                                              static_cast<T*>(slope));
    return cudaGetLastError();
  });
}

}  // namespace colossal::kernels::cuda
