// How are the slices of a shard made into launches?
#include "optim/detail/cuda/sweeps.hpp"

#include "core/error.hpp"
#include "optim/detail/cuda/sweeps_launch.hpp"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>

namespace colossal::detail::cuda {

namespace {

FlatArray flat_array(const Array& array) {
  if (array.data == nullptr) {
    return {};
  }
  const Kind half = array.dtype == at::kBFloat16 ? Kind::bf16 : Kind::fp16;
  return {.data = array.data, .kind = array.is_half() ? half : Kind::wide};
}

/// Whether a vector of 4 elements at any multiple of 4 starts where the hardware wants it.
bool starts_aligned(const FlatArray& array) {
  const std::uintptr_t bytes = array.kind == Kind::wide ? 16 : 8;
  return reinterpret_cast<std::uintptr_t>(array.data) % bytes == 0;
}

FlatArrays flat_arrays(const ShardArrays& arrays) {
  FlatArrays flat{.master = flat_array(arrays.master),
                  .grad = flat_array(arrays.grad),
                  .working = flat_array(arrays.working),
                  .states = {flat_array(arrays.states[0]), flat_array(arrays.states[1])},
                  .aligned = false};
  flat.aligned = starts_aligned(flat.master) && starts_aligned(flat.grad) &&
                 starts_aligned(flat.working) && std::ranges::all_of(flat.states, starts_aligned);
  return flat;
}

template <class Factors>
using Launch = cudaError_t (*)(const Batch<Factors>&, bool, cudaStream_t);

/// Slices [first, first + batch.num_slices) of the sweep.
template <class Factors>
void fill(Batch<Factors>& batch,
          const Sweep& sweep,
          std::span<const Factors> factors,
          std::size_t first) {
  for (int i = 0; i < batch.num_slices; ++i) {
    const std::size_t at = first + static_cast<std::size_t>(i);
    const Slice& slice = sweep.slices[at];
    batch.slices[i] = {slice.at, slice.count, slice.element, slice.key};
    if (!factors.empty()) {
      batch.factors[i] = factors[at];
    }
    batch.first_block[i + 1] = batch.first_block[i] + blocks_of(batch.slices[i]);
  }
}

template <class Factors>
void run(const Sweep& sweep,
         std::span<const Factors> factors,
         Launch<Factors> launch,
         const char* what) {
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  const FlatArrays arrays = flat_arrays(sweep.arrays);
  for (std::size_t first = 0; first < sweep.slices.size(); first += kSlices) {
    Batch<Factors> batch;
    batch.arrays = arrays;
    batch.num_slices =
        static_cast<int>(std::min<std::size_t>(kSlices, sweep.slices.size() - first));
    fill(batch, sweep, factors, first);
    at::Tensor partial;
    if (sweep.squares.defined()) {
      const std::int64_t blocks = batch.first_block[batch.num_slices];
      partial = at::empty({blocks, 2}, sweep.squares.options());
      batch.partial = partial.mutable_data_ptr<double>();
      batch.squares = sweep.squares.mutable_data_ptr<double>() + 2 * first;
    }
    const cudaError_t status = launch(batch, sweep.master == at::kDouble, stream);
    check(status == cudaSuccess,
          ErrorKind::internal,
          "cuda-launch",
          "the sweep '{}' over {} parameters could not be started: {}; the device may have failed "
          "before, or the binary was built for another one",
          what,
          batch.num_slices,
          cudaGetErrorString(status));
  }
}

}  // namespace

void adam(const Sweep& sweep, std::span<const AdamFactors> factors) {
  run(sweep, factors, launch_adam, "adam");
}

void lamb_moments(const Sweep& sweep, std::span<const LambFactors> factors) {
  run(sweep, factors, launch_lamb_moments, "lamb_moments");
}

void lamb_apply(const Sweep& sweep, std::span<const LambFactors> factors) {
  run(sweep, factors, launch_lamb_apply, "lamb_apply");
}

void sgd(const Sweep& sweep, std::span<const SgdFactors> factors) {
  run(sweep, factors, launch_sgd, "sgd");
}

void squares(const Sweep& sweep) {
  run<Nothing>(sweep, {}, launch_squares, "squares");
}

}  // namespace colossal::detail::cuda
