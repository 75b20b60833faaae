// Keyed dropout, vectorised.
#include "nn/kernels/dropout.hpp"

#include "mesh/philox.hpp"
#include "nn/kernels/cuda/dropout.hpp"
#include "nn/kernels/parallel.hpp"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>

namespace colossal::kernels {

namespace {

constexpr std::int64_t kBlocks = 64;  // Philox blocks drawn at a time
constexpr std::int64_t kWords = 4 * kBlocks;

template <class S>
struct Args {
  const S* x;
  const S* residual;  // may be null
  S* out;
  DropoutKey key;
  std::uint32_t threshold;  // smallest word that keeps
  Wide<S> scale;
};

/// Elements [begin, end), which lie in the kWords words that start at block `block`.
template <class S>
[[gnu::always_inline]] inline void drop(const Args<S>& a,
                                        std::uint64_t block,
                                        std::int64_t begin,
                                        std::int64_t end) {
  std::uint32_t words[kWords];
  for (std::uint32_t l = 0; l < kBlocks; ++l) {
    const std::uint64_t counter = block + l;
    const auto [w0, w1, w2, w3] = philox4x32(a.key.stream,
                                             {static_cast<std::uint32_t>(counter),
                                              static_cast<std::uint32_t>(counter >> 32U),
                                              a.key.step,
                                              0});
    words[4 * l] = w0;
    words[4 * l + 1] = w1;
    words[4 * l + 2] = w2;
    words[4 * l + 3] = w3;
  }
  const std::uint64_t skip = a.key.first + static_cast<std::uint64_t>(begin) - 4 * block;
  const std::uint32_t* const word = words + skip;
  const S* __restrict x = a.x + begin;
  S* __restrict out = a.out + begin;
  const std::int64_t count = end - begin;
  const auto kept = [&](std::int64_t i) {
    return word[i] >= a.threshold ? load(x[i]) * a.scale : Wide<S>{0};
  };
  if (a.residual == nullptr) {
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = store<S>(kept(i));
    }
  } else {  // added before the result is rounded to its dtype
    const S* __restrict residual = a.residual + begin;
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = store<S>(kept(i) + load(residual[i]));
    }
  }
}

COLOSSAL_VECTOR_CLONES void drop_lanes(const Args<float>& a,
                                       std::uint64_t block,
                                       std::int64_t begin,
                                       std::int64_t end) {
  drop(a, block, begin, end);
}
COLOSSAL_VECTOR_CLONES void drop_lanes(const Args<double>& a,
                                       std::uint64_t block,
                                       std::int64_t begin,
                                       std::int64_t end) {
  drop(a, block, begin, end);
}
COLOSSAL_VECTOR_CLONES void drop_lanes(const Args<c10::BFloat16>& a,
                                       std::uint64_t block,
                                       std::int64_t begin,
                                       std::int64_t end) {
  drop(a, block, begin, end);
}
COLOSSAL_VECTOR_CLONES void drop_lanes(const Args<c10::Half>& a,
                                       std::uint64_t block,
                                       std::int64_t begin,
                                       std::int64_t end) {
  drop(a, block, begin, end);
}

template <class T>
void drop_range(const Args<T>& a, std::int64_t begin, std::int64_t end) {
  while (begin < end) {
    const std::uint64_t index = a.key.first + static_cast<std::uint64_t>(begin);
    const auto room = kWords - static_cast<std::int64_t>(index % 4);
    const std::int64_t stop = std::min(end, begin + room);
    drop_lanes(a, index / 4, begin, stop);
    begin = stop;
  }
}

}  // namespace

at::Tensor dropout(const at::Tensor& x, const at::Tensor& residual, const DropoutKey& key) {
  if (x.is_cuda()) {
    return cuda::dropout(x, residual, key);
  }
  at::Tensor out = at::empty_like(x);
  with_floating(x, [&]<class T>(T) {
    const Args<T> args{x.const_data_ptr<T>(),
                       residual.defined() ? residual.const_data_ptr<T>() : nullptr,
                       out.mutable_data_ptr<T>(),
                       key,
                       static_cast<std::uint32_t>(std::min(std::round(key.p * 0x1p32), 0x1p32 - 1)),
                       static_cast<Wide<T>>(1 / (1 - key.p))};
    parallel_rows(
        x.numel(), 1, [&](std::int64_t begin, std::int64_t end) { drop_range(args, begin, end); });
  });
  return out;
}

}  // namespace colossal::kernels
