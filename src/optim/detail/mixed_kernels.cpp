// How does Adam read 16-bit gradients and write 16-bit weights without a second pass? One loop for
// each pair of formats, as converting tiles beside adam() takes a quarter longer.
#include "optim/detail/flat_kernels.hpp"
#include "optim/detail/half_formats.hpp"

#include <array>
#include <cmath>
#include <cstring>
#ifdef __SSE2__
#include <emmintrin.h>
#endif
#include <type_traits>

namespace colossal::detail {
namespace {

constexpr std::int64_t kBlock = 64;   // elements of which a loop of vectors is made
constexpr std::int64_t kAhead = 128;  // elements that are asked for before their turn

/// Gradients of 32 bits, seen as the formats of 16 bits are.
struct Fp32 {
  COLOSSAL_INLINE static float widen(float value) { return value; }
};
/// No working copy.
struct NoCopy {};

/// The arrays of adam_mixed() from one element on.
template <class G>
struct MixedView {
  float* __restrict param;
  float* __restrict exp_avg;
  float* __restrict exp_avg_sq;
  const G* __restrict grad;
  std::uint16_t* __restrict working;
  bool streams;

  [[nodiscard]] COLOSSAL_INLINE MixedView at(std::int64_t i) const {
    std::uint16_t* const copy = working == nullptr ? nullptr : working + i;
    return {param + i, exp_avg + i, exp_avg_sq + i, grad + i, copy, streams};
  }

  /// Asks for the arrays of a later block: five streams are more than the hardware follows over the
  /// borders of pages.
  template <bool kCopies>
  COLOSSAL_INLINE void ask_for() const {
    constexpr std::int64_t kLine = 64;  // bytes
    constexpr auto kFloats = kLine / static_cast<std::int64_t>(sizeof(float));
    constexpr auto kGrads = kLine / static_cast<std::int64_t>(sizeof(G));
    constexpr auto kHalves = kLine / static_cast<std::int64_t>(sizeof(std::uint16_t));
    for (std::int64_t i = 0; i < kBlock; i += kFloats) {
      __builtin_prefetch(param + i, 1);
      __builtin_prefetch(exp_avg + i, 1);
      __builtin_prefetch(exp_avg_sq + i, 1);
    }
    for (std::int64_t i = 0; i < kBlock; i += kGrads) {
      __builtin_prefetch(grad + i, 0);
    }
    for (std::int64_t i = 0; kCopies && i < kBlock; i += kHalves) {
      __builtin_prefetch(working + i, 1);
    }
  }
};

/// A block of the copy straight to memory, whose old content need not be read for that. `to` is at
/// a multiple of 16 bytes.
COLOSSAL_INLINE void stream_block(const std::uint16_t* from, std::uint16_t* to) {
#ifdef __SSE2__
  constexpr auto kVector = static_cast<std::int64_t>(sizeof(__m128i) / sizeof(std::uint16_t));
  for (std::int64_t i = 0; i < kBlock; i += kVector) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_load_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
#else
  std::memcpy(to, from, kBlock * sizeof(std::uint16_t));
#endif
}

/// Streamed stores are seen by others after this only.
COLOSSAL_INLINE void end_stream() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

/// adam_loop() of widened gradients, then the rounded copy.
template <bool kEpsInside, bool kL2, class Grad, class Copy, class G>
COLOSSAL_INLINE void mixed_block(const MixedView<G>& view,
                                 std::int64_t count,
                                 const AdamFactors& factors) {
  const auto beta1 = static_cast<float>(factors.beta1);
  const auto beta2 = static_cast<float>(factors.beta2);
  const auto rest1 = static_cast<float>(1 - factors.beta1);
  const auto rest2 = static_cast<float>(1 - factors.beta2);
  const auto scale = static_cast<float>(factors.grad);
  const auto l2 = static_cast<float>(factors.l2);
  const auto shrink = static_cast<float>(factors.shrink);
  const auto step = static_cast<float>(factors.step);
  const auto correction = static_cast<float>(factors.correction);
  const auto eps = static_cast<float>(factors.eps);
  for (std::int64_t i = 0; i < count; ++i) {
    const float scaled = Grad::widen(view.grad[i]) * scale;
    const float g = kL2 ? scaled + l2 * view.param[i] : scaled;
    const float m = beta1 * view.exp_avg[i] + rest1 * g;
    const float v = beta2 * view.exp_avg_sq[i] + rest2 * g * g;
    const float size =
        kEpsInside ? std::sqrt(v * correction + eps) : std::sqrt(v) * correction + eps;
    const float p = shrink * view.param[i] - step * (m / size);
    view.exp_avg[i] = m;
    view.exp_avg_sq[i] = v;
    view.param[i] = p;
    if constexpr (!std::is_same_v<Copy, NoCopy>) {
      view.working[i] = Copy::round(p);
    }
  }
}

/// Blocks whose copies are streamed; returns the elements done.
template <bool kEpsInside, bool kL2, class Grad, class Copy, class G>
COLOSSAL_INLINE std::int64_t streamed_loop(const MixedView<G>& view,
                                           std::int64_t count,
                                           const AdamFactors& factors) {
  alignas(64) std::array<std::uint16_t, kBlock> rounded;
  std::int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    view.at(i + kAhead).template ask_for<false>();
    MixedView<G> block = view.at(i);
    block.working = rounded.data();
    mixed_block<kEpsInside, kL2, Grad, Copy>(block, kBlock, factors);
    stream_block(rounded.data(), view.working + i);
  }
  end_stream();
  return i;
}

template <bool kEpsInside, bool kL2, class Grad, class Copy, class G>
COLOSSAL_INLINE void mixed_loop(const MixedView<G>& view,
                                std::int64_t count,
                                const AdamFactors& factors) {
  constexpr bool kCopies = !std::is_same_v<Copy, NoCopy>;
  std::int64_t i = 0;
  if constexpr (kCopies) {
    constexpr std::uintptr_t kAligned = 16;
    const bool aligned = reinterpret_cast<std::uintptr_t>(view.working) % kAligned == 0;
    if (view.streams && aligned) {
      i = streamed_loop<kEpsInside, kL2, Grad, Copy>(view, count, factors);
    }
  }
  for (; i + kBlock <= count; i += kBlock) {
    view.at(i + kAhead).template ask_for<kCopies>();
    mixed_block<kEpsInside, kL2, Grad, Copy>(view.at(i), kBlock, factors);
  }
  mixed_block<kEpsInside, kL2, Grad, Copy>(view.at(i), count - i, factors);
}

template <class Grad, class Copy, class G>
COLOSSAL_INLINE void any_mixed(const MixedView<G>& view,
                               std::int64_t count,
                               const AdamFactors& factors) {
  const bool l2 = factors.l2 != 0;
  if (factors.eps_inside_sqrt) {
    l2 ? mixed_loop<true, true, Grad, Copy>(view, count, factors)
       : mixed_loop<true, false, Grad, Copy>(view, count, factors);
  } else {
    l2 ? mixed_loop<false, true, Grad, Copy>(view, count, factors)
       : mixed_loop<false, false, Grad, Copy>(view, count, factors);
  }
}

template <class Grad, class G>
COLOSSAL_INLINE void any_copy(const MixedArrays& arrays,
                              const G* grad,
                              std::int64_t count,
                              const AdamFactors& factors) {
  const MixedView<G> view{
      arrays.param, arrays.exp_avg, arrays.exp_avg_sq, grad, arrays.working, arrays.streams};
  if (arrays.working == nullptr) {
    any_mixed<Grad, NoCopy>(view, count, factors);
  } else if (arrays.working_format == HalfFormat::bf16) {
    any_mixed<Grad, Bf16>(view, count, factors);
  } else {
    any_mixed<Grad, Fp16>(view, count, factors);
  }
}

}  // namespace

COLOSSAL_CLONES
void adam_mixed(const MixedArrays& arrays, std::int64_t count, const AdamFactors& factors) {
  if (arrays.half_grad == nullptr) {
    any_copy<Fp32>(arrays, arrays.grad, count, factors);
  } else if (arrays.grad_format == HalfFormat::bf16) {
    any_copy<Bf16>(arrays, arrays.half_grad, count, factors);
  } else {
    any_copy<Fp16>(arrays, arrays.half_grad, count, factors);
  }
}

}  // namespace colossal::detail
