// How are Philox words and initial values computed, one at a time and a tensor at a time?
#include "mesh/random.hpp"

#include "core/error.hpp"
#include "core/hash.hpp"
#include "mesh/philox.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace colossal {

namespace {

constexpr int kLanes = 64;  // Philox blocks at a time: 4 * kLanes values

// Inverse of the normal distribution function by polynomials only: -log(4 p (1 - p)) after Cephes'
// logf, then erfinv after Giles 2010 ("Approximating the erfinv function"): his central polynomial,
// and in the tail a least-squares fit of our own (relative error 6e-7), because 31-bit words reach
// further than his single precision. No table, no branch, no libm: the compiler turns the loop into
// vector code, and without contraction every instruction set gives the same bits.
constexpr float kSqrt2 = 1.41421356F;

[[gnu::always_inline]] inline float minus_log(float y) noexcept {
  // y = 2^e * m with m in [sqrt(1/2), sqrt(2))
  const auto bits = std::bit_cast<std::int32_t>(y);
  const std::int32_t e = (bits - 0x3F3504F3) >> 23;
  const float f = std::bit_cast<float>(bits - e * (1 << 23)) - 1.0F;
  float p = 7.0376836292E-2F;
  p = p * f - 1.1514610310E-1F;
  p = p * f + 1.1676998740E-1F;
  p = p * f - 1.2420140846E-1F;
  p = p * f + 1.4249322787E-1F;
  p = p * f - 1.6668057665E-1F;
  p = p * f + 2.0000714765E-1F;
  p = p * f - 2.4999993993E-1F;
  p = p * f + 3.3333331174E-1F;
  const auto k = static_cast<float>(e);
  const float small = (p * f - 0.5F) * (f * f) + k * -2.12194440e-4F;
  return -(k * 0.693359375F + (f + small));
}

[[gnu::always_inline]] inline float erfinv_over_x(float w) noexcept {
  const float a = w - 2.5F;
  float near = 2.81022636e-08F;
  near = near * a + 3.43273939e-07F;
  near = near * a - 3.5233877e-06F;
  near = near * a - 4.39150654e-06F;
  near = near * a + 0.00021858087F;
  near = near * a - 0.00125372503F;
  near = near * a - 0.00417768164F;
  near = near * a + 0.246640727F;
  near = near * a + 1.50140941F;
  const float b = __builtin_sqrtf(w) - 3.25F;
  float far = -0.000178757924F;
  far = far * b + 0.000868036586F;
  far = far * b - 0.00182321027F;
  far = far * b + 0.00257945713F;
  far = far * b - 0.00371262641F;
  far = far * b + 0.00534813991F;
  far = far * b + 1.0052557F;
  far = far * b + 3.08388638F;
  return w < 5.0F ? near : far;
}

/// Standard normal value of a word: the top bit is the sign, the rest the distance from the middle.
[[gnu::always_inline]] inline float normal(std::uint32_t word) noexcept {
  const auto sign = static_cast<std::int32_t>(word) >> 31;  // 0 or -1
  const std::int32_t a = static_cast<std::int32_t>(word) ^ sign;
  // x = (a + 1/2) / 2^31 in (0, 1); q = 1 - x from the integer, exact in the tail
  const float x = (static_cast<float>(a) + 0.5F) * 0x1p-31F;
  const float q = (static_cast<float>(0x7FFFFFFF - a) + 0.5F) * 0x1p-31F;
  const float z = kSqrt2 * x * erfinv_over_x(std::max(minus_log(q * (1.0F + x)), 0.0F));
  return sign < 0 ? -z : z;
}

/// out[i] = scale * normal(word of element 4 * first_block + i), 4 * kLanes values.
[[gnu::target_clones("avx512f", "avx2", "default")]] void normal_lanes(float* __restrict out,
                                                                       std::uint64_t key,
                                                                       std::uint64_t first_block,
                                                                       float scale) {
  std::uint32_t words[4 * kLanes];
  for (std::uint32_t l = 0; l < kLanes; ++l) {
    const std::uint64_t block = first_block + l;
    const auto [w0, w1, w2, w3] = philox4x32(
        key, {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32U), 0, 0});
    words[4 * l] = w0;
    words[4 * l + 1] = w1;
    words[4 * l + 2] = w2;
    words[4 * l + 3] = w3;
  }
  for (int i = 0; i < 4 * kLanes; ++i) {
    out[i] = scale * normal(words[i]);
  }
}

/// out[i] = scale * normal(word of element first + i).
void normal_run(
    float* out, std::int64_t count, std::uint64_t key, std::uint64_t first, float scale) {
  float buffer[4 * kLanes];
  while (count > 0) {
    const std::uint64_t skip = first % 4;
    const std::int64_t take = std::min<std::int64_t>(count, 4 * kLanes - static_cast<int>(skip));
    const bool whole = take == 4 * kLanes;
    normal_lanes(whole ? out : buffer, key, first / 4, scale);
    if (!whole) {
      std::copy_n(buffer + skip, take, out);
    }
    out += take;
    first += static_cast<std::uint64_t>(take);
    count -= take;
  }
}

void fill_run(
    float* out, std::int64_t count, const InitSpec& init, std::uint64_t key, std::int64_t first) {
  if (init.kind == InitSpec::Kind::normal) {
    normal_run(out, count, key, static_cast<std::uint64_t>(first), static_cast<float>(init.std));
  } else {
    std::fill_n(out, count, init.kind == InitSpec::Kind::ones ? 1.0F : 0.0F);
  }
}

Shape strides_of(at::IntArrayRef shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * shape[d];
  }
  return strides;
}

/// Trailing dims of the box that are whole on both sides: one run of both tensors covers them.
std::size_t first_whole_dim(const Region& part, const Shape& global, at::IntArrayRef local) {
  std::size_t d = part.extent.size();
  while (d > 0 && part.extent[d - 1] == global[d - 1] && part.extent[d - 1] == local[d - 1]) {
    --d;
  }
  return d;
}

void fill_box(at::Tensor& local,
              const Region& part,
              const InitSpec& init,
              std::uint64_t key,
              const Shape& global) {
  const Shape global_strides = strides_of(global);
  const Shape local_strides = strides_of(local.sizes());
  const std::size_t whole = first_whole_dim(part, global, local.sizes());
  const std::size_t run_dim = whole > 0 ? whole - 1 : 0;  // a stretch of this dim is one run
  std::int64_t run = 1;
  std::int64_t runs = 1;
  for (std::size_t d = 0; d < part.extent.size(); ++d) {
    (d < run_dim ? runs : run) *= part.extent[d];
  }
  for (std::int64_t r = 0; r < runs; ++r) {
    std::int64_t from = 0;
    std::int64_t to = 0;
    std::int64_t rest = r;
    for (std::size_t d = part.extent.size(); d-- > 0;) {
      const std::int64_t step = d < run_dim ? rest % part.extent[d] : 0;
      rest = d < run_dim ? rest / part.extent[d] : rest;
      from += (part.global_offset[d] + step) * global_strides[d];
      to += (part.local_offset[d] + step) * local_strides[d];
    }
    fill_run(local.data_ptr<float>() + to, run, init, key, from);
  }
}

}  // namespace

std::uint64_t stream_key(std::uint64_t seed, std::string_view name) noexcept {
  return splitmix64(splitmix64(seed) ^ fnv1a64(name));
}

float normal_from_word(std::uint32_t word) noexcept {
  return normal(word);
}

void initialize(at::Tensor& local,
                const InitSpec& init,
                std::uint64_t key,
                const Shape& global,
                std::span<const Region> parts) {
  check(local.is_contiguous(),
        ErrorKind::internal,
        "init-contiguous",
        "initial values need a contiguous tensor of {} elements",
        local.numel());
  at::NoGradGuard no_grad;
  const bool direct = local.scalar_type() == at::kFloat;
  at::Tensor values = direct ? local : at::empty(local.sizes(), at::kFloat);
  values.zero_();
  for (const Region& part : parts) {
    fill_box(values, part, init, key, global);
  }
  if (!direct) {
    local.copy_(values);
  }
}

}  // namespace colossal
