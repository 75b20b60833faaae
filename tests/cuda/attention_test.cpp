// Is attention of a GPU that of the CPU, by whichever kernel it goes?
#include "nn/kernels/attention.hpp"

#include "core/error.hpp"
#include "cuda/deterministic.hpp"
#include "cuda/kernel_helpers.hpp"
#include "nn/kernels/cached_attention.hpp"
#include "nn/kernels/cuda/packed_attention.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/zeros.h>

#include <string>
#include <vector>

namespace colossal::test {
namespace {

using kernels::AttentionShape;

struct Case {
  AttentionShape shape;
  std::int64_t batch;
  std::int64_t sequence;
};

/// Head sizes and lengths of every kernel: plain, FlashAttention's (70 tokens), cuDNN's (whole
/// tiles of 64).
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const bool causal : {true, false}) {
    all.push_back({{1, 1, 5, causal}, 2, 1});
    all.push_back({{3, 3, 5, causal}, 2, 17});
    all.push_back({{6, 2, 12, causal}, 3, 33});
    all.push_back({{4, 4, 64, causal}, 2, 70});
    all.push_back({{4, 2, 64, causal}, 2, 128});
    all.push_back({{2, 2, 128, causal}, 1, 192});
    all.push_back({{2, 1, 160, causal}, 1, 64});
  }
  return all;
}

at::Tensor packed(const Case& c, at::ScalarType dtype) {
  const std::int64_t width = (c.shape.num_heads + 2 * c.shape.num_kv_heads) * c.shape.head_dim;
  return normal_tensor({c.batch, c.sequence, width}, "qkv", dtype);
}

at::Tensor grad_of(const Case& c, at::ScalarType dtype) {
  return normal_tensor({c.batch, c.sequence, c.shape.num_heads * c.shape.head_dim}, "grad", dtype);
}

/// 16-bit kernels of libraries round probabilities to 16 bits before they meet the values.
double tolerance(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 1e-11;
    case at::kFloat:
      return 1e-5;
    case at::kBFloat16:
      return 2e-2;
    default:
      return 3e-3;
  }
}

void compare(const Case& c, at::ScalarType dtype, const at::Tensor& starts) {
  INFO(c10::toString(dtype) << ", heads " << c.shape.num_heads << "/" << c.shape.num_kv_heads
                            << " of " << c.shape.head_dim << ", tokens " << c.sequence);
  const at::Tensor qkv = packed(c, dtype);
  const at::Tensor grad = grad_of(c, dtype);
  const at::Tensor wide = qkv.to(at::kDouble);
  const auto cpu = kernels::attention_forward(wide, c.shape, starts);
  const at::Tensor there = on_gpu(qkv);
  const at::Tensor starts_there = starts.defined() ? on_gpu(starts) : at::Tensor();
  const auto gpu = kernels::attention_forward(there, c.shape, starts_there);
  REQUIRE(gpu.context_bsh.scalar_type() == dtype);
  REQUIRE(gpu.context_bsh.sizes() == cpu.context_bsh.sizes());
  require_close(cpu.context_bsh, gpu.context_bsh, tolerance(dtype), "context");
  const at::Tensor cpu_grad =
      kernels::attention_backward(grad.to(at::kDouble), wide, cpu, c.shape, starts);
  const at::Tensor gpu_grad =
      kernels::attention_backward(on_gpu(grad), there, gpu, c.shape, starts_there);
  REQUIRE(gpu_grad.is_contiguous());
  require_close(cpu_grad, gpu_grad, 2 * tolerance(dtype), "gradient");
}

}  // namespace

TEST_CASE("GPU: attention", "[cuda][attention]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType dtype : kAllTypes) {
    for (const Case& c : cases()) {
      compare(c, dtype, {});
    }
  }
}

TEST_CASE("GPU: documents do not see each other", "[cuda][attention]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType dtype : kAllTypes) {
    for (const Case& c : cases()) {
      if (c.shape.causal) {
        const at::Tensor places = at::arange(c.sequence, at::kLong);
        const at::Tensor starts = places.sub(places.remainder(23)).expand({c.batch, c.sequence});
        compare(c, dtype, starts.contiguous());
      }
    }
  }
}

TEST_CASE("GPU: attention whose bits repeat", "[cuda][attention]") {
  NEEDS_GPUS(1)
  const Deterministic repeats(kGpu);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const Case& c : cases()) {
      compare(c, dtype, {});
    }
    const Case large{{12, 12, 64, true}, 4, 1024};
    const at::Tensor qkv = on_gpu(packed(large, dtype));
    const at::Tensor grad = on_gpu(grad_of(large, dtype));
    const auto forward = kernels::attention_forward(qkv, large.shape);
    const at::Tensor first = kernels::attention_backward(grad, qkv, forward, large.shape);
    for (int again = 0; again < 5; ++again) {
      const auto same = kernels::attention_forward(qkv, large.shape);
      REQUIRE(at::equal(forward.context_bsh, same.context_bsh));
      REQUIRE(at::equal(first, kernels::attention_backward(grad, qkv, same, large.shape)));
    }
  }
}

TEST_CASE("GPU: gradients of attention are written into place", "[cuda][attention]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const Case& c : {Case{{3, 3, 64, true}, 2, 128},
                          Case{{2, 2, 128, true}, 1, 192},
                          Case{{25, 25, 64, true}, 1, 1024},
                          Case{{4, 4, 64, false}, 2, 256}}) {
      const at::Tensor qkv = on_gpu(packed(c, dtype));
      const at::Tensor grad = on_gpu(grad_of(c, dtype));
      const auto forward = kernels::attention_forward(qkv, c.shape);
      const at::Tensor found =
          kernels::cuda::packed_attention_backward(grad, qkv, forward, c.shape);
      if (!found.defined()) {
        WARN("built without nvidia-cudnn-frontend, or cuDNN has no kernel");
        return;
      }
      const at::Tensor wide = qkv.cpu().to(at::kDouble);
      const auto exact = kernels::attention_forward(wide, c.shape);
      require_close(kernels::attention_backward(grad.cpu().to(at::kDouble), wide, exact, c.shape),
                    found,
                    2 * tolerance(dtype),
                    "gradient");
    }
  }
}

TEST_CASE("GPU: attention by samples, where all scores at once would be large",
          "[cuda][attention]") {
  NEEDS_GPUS(1)
  // 8 heads of 2048 x 2048 scores take 128 MiB a sample: three samples are two calls.
  const Case c{{8, 8, 4, true}, 3, 2048};
  const at::Tensor qkv = on_gpu(packed(c, at::kFloat));
  const at::Tensor grad = on_gpu(grad_of(c, at::kFloat));
  const auto whole = kernels::attention_forward(qkv, c.shape);
  const at::Tensor whole_grad = kernels::attention_backward(grad, qkv, whole, c.shape);
  for (std::int64_t b = 0; b < c.batch; ++b) {
    const at::Tensor one = qkv.narrow(0, b, 1);
    const auto alone = kernels::attention_forward(one, c.shape);
    require_close(alone.context_bsh, whole.context_bsh.narrow(0, b, 1), 1e-6, "context");
    require_close(kernels::attention_backward(grad.narrow(0, b, 1), one, alone, c.shape),
                  whole_grad.narrow(0, b, 1),
                  1e-6,
                  "gradient");
  }
}

TEST_CASE("GPU: cached attention", "[cuda][attention]") {
  NEEDS_GPUS(1)
  constexpr std::int64_t kCapacity = 300;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const AttentionShape& shape :
         {AttentionShape{1, 1, 16, true}, {4, 2, 64, true}, {6, 1, 5, true}}) {
      const at::Tensor qkv = packed({shape, 3, 200}, dtype);
      const std::vector<std::int64_t> slots = {4, 0, 2};
      std::vector<std::int64_t> lengths = {0, 0, 0};
      const at::Tensor keys = at::zeros({5, shape.num_kv_heads, shape.head_dim, kCapacity}, dtype);
      const at::Tensor values =
          at::zeros({5, shape.num_kv_heads, kCapacity, shape.head_dim}, dtype);
      const at::Tensor keys_there = on_gpu(keys);
      const at::Tensor values_there = on_gpu(values);
      const auto add = [&](std::int64_t first, std::int64_t count) {
        const at::Tensor part = qkv.narrow(1, first, count).contiguous();
        const at::Tensor cpu =
            kernels::cached_attention(part, shape, {keys, values, slots, lengths});
        const at::Tensor gpu = kernels::cached_attention(
            on_gpu(part), shape, {keys_there, values_there, slots, lengths});
        require_close(cpu, gpu, dtype == at::kFloat ? 1e-5 : 1e-12, "context");
        for (std::int64_t& length : lengths) {
          length += count;
        }
      };
      add(0, 190);
      add(190, 1);
      add(191, 9);
      REQUIRE(at::equal(keys, keys_there.cpu()));
      REQUIRE(at::equal(values, values_there.cpu()));
    }
  }
}

TEST_CASE("GPU: what a device cannot start is told by name", "[cuda][attention]") {
  NEEDS_GPUS(1)
  const at::TensorOptions options{kGpu};
  const auto id_of = [&](std::int64_t heads, at::ScalarType dtype) -> std::string {
    const AttentionShape shape{heads, heads, 1, true};
    const std::vector<std::int64_t> slots = {0};
    const std::vector<std::int64_t> lengths = {0};
    const at::Tensor keys = at::zeros({1, heads, 1, 1}, options.dtype(dtype));
    try {
      (void)kernels::cached_attention(at::zeros({1, 1, 3 * heads}, options.dtype(dtype)),
                                      shape,
                                      {keys, keys.clone(), slots, lengths});
    } catch (const Error& error) {
      return std::string(error.id());
    }
    return "";
  };
  CHECK(id_of(8, at::kFloat).empty());
  CHECK(id_of(70'000, at::kFloat) == "cuda-launch");  // more heads than a grid has rows
  CHECK(id_of(8, at::kBFloat16) == "kernel-dtype");
  CHECK(id_of(8, at::kFloat).empty());  // the device goes on
}

TEST_CASE("GPU: a cached row does not depend on its neighbours", "[cuda][attention]") {
  NEEDS_GPUS(1)
  const AttentionShape shape{4, 2, 32, true};
  const at::Tensor qkv = on_gpu(packed({shape, 70, 9}, at::kFloat));  // more than one launch
  const auto context = [&](std::int64_t first, std::int64_t count) {
    const at::TensorOptions options = qkv.options();
    std::vector<std::int64_t> slots;
    for (std::int64_t i = 0; i < count; ++i) {
      slots.push_back(count - 1 - i);
    }
    const std::vector<std::int64_t> lengths(static_cast<std::size_t>(count), 0);
    return kernels::cached_attention(qkv.narrow(0, first, count),
                                     shape,
                                     {at::zeros({count, 2, 32, 16}, options),
                                      at::zeros({count, 2, 16, 32}, options),
                                      slots,
                                      lengths});
  };
  const at::Tensor together = context(0, 70);
  for (const std::int64_t row : {0, 13, 64, 69}) {
    REQUIRE(at::equal(context(row, 1), together.narrow(0, row, 1)));
  }
}

}  // namespace colossal::test
