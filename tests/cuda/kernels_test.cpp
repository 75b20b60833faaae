// Do kernels of a GPU give what those of the CPU give, for every type, odd sizes and any alignment?
#include "core/batch.hpp"
#include "cuda/kernel_helpers.hpp"
#include "mesh/dtype.hpp"
#include "nn/kernels/activation.hpp"
#include "nn/kernels/columns.hpp"
#include "nn/kernels/dropout.hpp"
#include "nn/kernels/embedding.hpp"
#include "nn/kernels/few_rows.hpp"
#include "nn/kernels/layer_norm.hpp"
#include "nn/kernels/token_loss.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

namespace colossal::test {
namespace {

constexpr ActivationKind kKinds[] = {
    ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::relu};

/// Calls f(dtype, shape, shifted) for the whole grid.
template <class F>
void for_grid(const F& f) {
  for (const at::ScalarType dtype : kAllTypes) {
    for (const Shape& shape : kGrid) {
      f(dtype, shape, false);
      f(dtype, shape, true);
    }
  }
}

}  // namespace

TEST_CASE("GPU: bias and activation", "[cuda][kernels]") {
  NEEDS_GPUS(1)
  for_grid([](at::ScalarType dtype, const Shape& shape, bool shifted) {
    const at::Tensor pre = normal_tensor(shape, "pre", dtype);
    const at::Tensor bias = normal_tensor({shape[1]}, "bias", dtype);
    const at::Tensor grad = normal_tensor(shape, "grad", dtype);
    for (const ActivationKind kind : kKinds) {
      const at::Tensor there = on_gpu(pre, shifted);
      require_same(kernels::bias_act_forward(pre, bias, kind),
                   kernels::bias_act_forward(there, on_gpu(bias, shifted), kind),
                   "activation");
      const auto cpu = kernels::bias_act_backward(grad, pre, bias, kind);
      const auto gpu = kernels::bias_act_backward(on_gpu(grad, shifted), there, on_gpu(bias), kind);
      require_same(cpu.pre_mf, gpu.pre_mf, "gradient before activation");
      require_same(cpu.bias_f, gpu.bias_f, "gradient of bias");
    }
  });
}

TEST_CASE("GPU: activations far from zero", "[cuda][kernels]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType dtype : kAllTypes) {
    const at::Tensor far = at::linspace(-200, 200, 401, at::kFloat).view({1, 401}).to(dtype);
    const at::Tensor bias = at::zeros({401}, dtype);
    const at::Tensor ones = at::ones({1, 401}, dtype);
    for (const ActivationKind kind : kKinds) {
      require_same(kernels::bias_act_forward(far, bias, kind),
                   kernels::bias_act_forward(on_gpu(far), on_gpu(bias), kind),
                   "far");
      require_same(kernels::bias_act_backward(ones, far, bias, kind).pre_mf,
                   kernels::bias_act_backward(on_gpu(ones), on_gpu(far), on_gpu(bias), kind).pre_mf,
                   "far gradient");
    }
    require_same(kernels::swiglu_forward(far, ones),
                 kernels::swiglu_forward(on_gpu(far), on_gpu(ones)),
                 "far swiglu");
  }
}

TEST_CASE("GPU: swiglu", "[cuda][kernels]") {
  NEEDS_GPUS(1)
  for_grid([](at::ScalarType dtype, const Shape& shape, bool shifted) {
    const at::Tensor gate = normal_tensor(shape, "gate", dtype);
    const at::Tensor up = normal_tensor(shape, "up", dtype);
    const at::Tensor grad = normal_tensor(shape, "grad", dtype);
    const at::Tensor there = on_gpu(gate, shifted);
    require_same(
        kernels::swiglu_forward(gate, up), kernels::swiglu_forward(there, on_gpu(up)), "swiglu");
    const auto cpu = kernels::swiglu_backward(grad, gate, up);
    const auto gpu = kernels::swiglu_backward(on_gpu(grad), there, on_gpu(up, shifted));
    require_same(cpu.gate, gpu.gate, "gradient of gate");
    require_same(cpu.up, gpu.up, "gradient of up");
  });
}

TEST_CASE("GPU: LayerNorm", "[cuda][kernels]") {
  NEEDS_GPUS(1)
  for_grid([](at::ScalarType dtype, const Shape& shape, bool shifted) {
    const at::Tensor x = normal_tensor(shape, "x", dtype).add(1);
    const at::Tensor weight = normal_tensor({shape[1]}, "weight", dtype);
    const at::Tensor bias = normal_tensor({shape[1]}, "bias", dtype);
    const at::Tensor grad = normal_tensor(shape, "grad", dtype);
    const at::Tensor residual = normal_tensor(shape, "residual", dtype);
    const at::Tensor x_there = on_gpu(x, shifted);
    const at::Tensor weight_there = on_gpu(weight, shifted);
    const auto cpu = kernels::layer_norm_forward(x, weight, bias, 1e-5);
    const auto gpu = kernels::layer_norm_forward(x_there, weight_there, on_gpu(bias), 1e-5);
    require_same(cpu.y_mh, gpu.y_mh, "y");
    require_same(cpu.mean_m, gpu.mean_m, "mean");
    require_close(cpu.rstd_m, gpu.rstd_m, 1e-5, "rstd");
    // both go on from the statistics of the CPU
    const at::Tensor mean = on_gpu(cpu.mean_m);
    const at::Tensor rstd = on_gpu(cpu.rstd_m);
    for (const bool forks : {false, true}) {
      const at::Tensor branch = forks ? residual : at::Tensor();
      const at::Tensor branch_there = forks ? on_gpu(residual, shifted) : at::Tensor();
      const auto cpu_grad =
          kernels::layer_norm_backward(grad, {x, weight, cpu.mean_m, cpu.rstd_m}, branch);
      const auto gpu_grad = kernels::layer_norm_backward(
          on_gpu(grad), {x_there, weight_there, mean, rstd}, branch_there);
      const double tolerance = dtype == at::kDouble ? 1e-11 : 2e-5;
      if (shape[1] > 1) {  // one element is its own mean: all is a difference of rounding
        require_same(cpu_grad.x_mh, gpu_grad.x_mh, "gradient of x");
      }
      require_close(cpu_grad.weight_h, gpu_grad.weight_h, tolerance, "gradient of weight");
      require_close(cpu_grad.bias_h, gpu_grad.bias_h, tolerance, "gradient of bias");
    }
  });
}

TEST_CASE("GPU: LayerNorm of rows longer than registers hold", "[cuda][kernels]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType dtype : kAllTypes) {
    for (const std::int64_t hidden : {4097, 8192, 20'000, 40'000}) {
      const at::Tensor x = normal_tensor({5, hidden}, "x", dtype);
      const at::Tensor weight = normal_tensor({hidden}, "weight", dtype);
      const at::Tensor grad = normal_tensor({5, hidden}, "grad", dtype);
      const auto cpu = kernels::layer_norm_forward(x, weight, weight, 1e-5);
      const auto gpu = kernels::layer_norm_forward(on_gpu(x), on_gpu(weight), on_gpu(weight), 1e-5);
      require_same(cpu.y_mh, gpu.y_mh, "y");
      const auto cpu_grad =
          kernels::layer_norm_backward(grad, {x, weight, cpu.mean_m, cpu.rstd_m}, {});
      const at::Tensor x_there = on_gpu(x);
      const at::Tensor weight_there = on_gpu(weight);
      const auto gpu_grad = kernels::layer_norm_backward(
          on_gpu(grad), {x_there, weight_there, gpu.mean_m, gpu.rstd_m}, {});
      require_same(cpu_grad.x_mh, gpu_grad.x_mh, "gradient of x");
      require_close(cpu_grad.weight_h, gpu_grad.weight_h, 1e-5, "gradient of weight");
    }
  }
}

TEST_CASE("GPU: sums of columns, and in the same order every time", "[cuda][kernels]") {
  NEEDS_GPUS(1)
  for_grid([](at::ScalarType dtype, const Shape& shape, bool shifted) {
    const at::Tensor x = normal_tensor(shape, "x", dtype);
    const at::Tensor there = on_gpu(x, shifted);
    const at::Tensor sums = kernels::column_sums(there);
    REQUIRE(sums.scalar_type() == wide_dtype(dtype));
    require_close(x.to(at::kDouble).sum(0), sums, dtype == at::kDouble ? 1e-12 : 1e-5, "sums");
    REQUIRE(at::equal(sums, kernels::column_sums(there)));
    REQUIRE(at::equal(sums, kernels::column_sums(on_gpu(x, !shifted))));
  });
  const at::Tensor tall = normal_tensor({20'011, 40}, "tall", at::kFloat);
  require_close(tall.to(at::kDouble).sum(0), kernels::column_sums(on_gpu(tall)), 1e-5, "tall");
}

TEST_CASE("GPU: dropout has the bits of the CPU, wherever a tensor begins", "[cuda][kernels]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType dtype : kAllTypes) {
    for (const std::int64_t first : {0L, 1L, 3L, 8L, (1L << 40) + 5}) {
      for (const std::int64_t count : {1, 7, 4096, 100'001}) {
        const kernels::DropoutKey key{
            stream_key(1, "site"), 7, static_cast<std::uint64_t>(first), 0.3};
        const at::Tensor x = normal_tensor({count}, "x", dtype);
        const at::Tensor residual = normal_tensor({count}, "residual", dtype);
        INFO(c10::toString(dtype) << ", " << count << " from " << key.first);
        for (const bool shifted : {false, true}) {
          const at::Tensor there = on_gpu(x, shifted);
          REQUIRE(at::equal(kernels::dropout(x, {}, key), kernels::dropout(there, {}, key).cpu()));
          REQUIRE(at::equal(kernels::dropout(x, residual, key),
                            kernels::dropout(there, on_gpu(residual), key).cpu()));
        }
      }
    }
  }
}

TEST_CASE("GPU: tables", "[cuda][kernels]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType dtype : kAllTypes) {
    for (const std::int64_t hidden : {1, 33, 64, 768}) {
      for (const std::int64_t rows : {1, 13, 1000}) {
        const std::int64_t count = 777;  // more than a warp adds, if rows are few
        const at::Tensor weight = normal_tensor({rows, hidden}, "weight", dtype);
        const at::Tensor grad = normal_tensor({count, hidden}, "grad", dtype);
        const at::Tensor indices = at::arange(count, at::kLong).mul(37).remainder(rows);
        const at::Tensor there = on_gpu(indices);
        const at::Tensor looked_up = kernels::embedding_forward(on_gpu(weight, rows == 13), there);
        REQUIRE(at::equal(kernels::embedding_forward(weight, indices), looked_up.cpu()));
        const at::Tensor gpu = kernels::embedding_backward(on_gpu(grad), there, rows);
        const at::Tensor exact = kernels::embedding_backward(grad.to(at::kDouble), indices, rows);
        require_same(exact.to(dtype), gpu, "gradient of a table");
        REQUIRE(at::equal(gpu, kernels::embedding_backward(on_gpu(grad), there, rows)));
      }
    }
  }
}

TEST_CASE("GPU: an index outside a table is not read, and shows", "[cuda][kernels]") {
  NEEDS_GPUS(1)
  const at::Tensor indices = at::arange(-1, 4, at::kLong);
  const at::Tensor rows =
      kernels::embedding_forward(at::ones({3, 8}, at::TensorOptions(kGpu)), on_gpu(indices)).cpu();
  REQUIRE(at::isnan(rows.select(0, 0)).all().item<bool>());
  REQUIRE(at::equal(rows.narrow(0, 1, 3), at::ones({3, 8})));
  REQUIRE(at::isnan(rows.select(0, 4)).all().item<bool>());
  const at::Tensor grad =
      kernels::embedding_backward(at::ones({5, 8}, at::TensorOptions(kGpu)), on_gpu(indices), 3);
  REQUIRE(at::equal(grad.cpu(), at::ones({3, 8})));
}

TEST_CASE("GPU: token loss", "[cuda][kernels]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType dtype : kAllTypes) {
    for (const std::int64_t vocabulary : {1, 5, 64, 1000, 50'257}) {
      for (const std::int64_t padding : {0, 3, 7}) {
        const std::int64_t rows = 11;
        at::Tensor logits = normal_tensor({rows, vocabulary + padding}, "z", dtype).mul(3);
        at::Tensor labels = at::arange(rows, at::kLong).mul(7919).remainder(vocabulary);
        labels.select(0, 4).fill_(kIgnoreLabel);
        const at::Tensor exact = logits.to(at::kDouble);
        at::Tensor there = on_gpu(logits, padding == 3);
        const at::Tensor before = there.clone();
        const double loss = kernels::token_loss(logits, labels, vocabulary, 1.0);
        const at::Tensor eval =
            kernels::token_loss_tensor(there, on_gpu(labels), vocabulary, std::nullopt);
        REQUIRE(at::equal(there, before));
        const at::Tensor seen = kernels::token_loss_tensor(there, on_gpu(labels), vocabulary, 1.0);
        REQUIRE(at::equal(seen, eval));
        REQUIRE(seen.scalar_type() == wide_dtype(dtype));
        INFO(vocabulary << " + " << padding);
        REQUIRE(seen.item<double>() == Approx(loss).epsilon(2e-6).margin(1e-6));
        require_same(logits, there, "gradient of logits");
      }
    }
  }
}

TEST_CASE("GPU: extremes of the loss", "[cuda][kernels]") {
  NEEDS_GPUS(1)
  const double infinity = std::numeric_limits<double>::infinity();
  at::Tensor far = at::full({2, 16}, -infinity, at::TensorOptions(kGpu));
  far.select(1, 9).fill_(1e30);
  const at::Tensor labels = at::full({2}, 9, at::TensorOptions(at::kLong).device(kGpu));
  REQUIRE(kernels::token_loss_tensor(far, labels, 16, 1.0).item<double>() == 0);
  REQUIRE(far.abs().max().item<double>() == 0);
  for (const double bad : {infinity, std::nan("")}) {
    at::Tensor logits = at::zeros({2, 5000}, at::TensorOptions(kGpu));
    logits.select(0, 1).select(0, 4001).fill_(bad);
    REQUIRE(std::isnan(kernels::token_loss_tensor(logits, labels, 5000, 1.0).item<double>()));
  }
  for (const std::int64_t label : {-1, 16}) {
    at::Tensor logits = at::zeros({2, 24}, at::TensorOptions(kGpu));
    const at::Tensor wrong = at::full({2}, label, at::TensorOptions(at::kLong).device(kGpu));
    REQUIRE(std::isnan(kernels::token_loss_tensor(logits, wrong, 16, 1.0).item<double>()));
    REQUIRE(at::isnan(logits.narrow(1, 0, 16)).all().item<bool>());
  }
}

TEST_CASE("GPU: the gradient of the loss is scaled by a number of the device", "[cuda][kernels]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType dtype : kAllTypes) {
    for (const std::int64_t count : {1, 64, 1001}) {
      at::Tensor cpu = normal_tensor({count}, "x", dtype);
      at::Tensor gpu = on_gpu(cpu);
      const at::Tensor factor = at::full({}, 0.37, wide_dtype(dtype));
      kernels::scale_loss_grad(cpu, factor, 0.5);
      kernels::scale_loss_grad(gpu, factor.to(kGpu), 0.5);
      require_same(cpu, gpu, "scaled gradient");
      const at::Tensor before = gpu.clone();
      kernels::scale_loss_grad(gpu, factor.to(kGpu), factor.item<double>());
      REQUIRE(at::equal(gpu, before));
    }
  }
}

TEST_CASE("GPU: few rows, each with the bits it has alone", "[cuda][kernels]") {
  NEEDS_GPUS(1)
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const std::int64_t in : {1, 5, 8, 31, 128, 1000}) {
      const at::Tensor x = normal_tensor({kernels::kFewRows, in}, "x", dtype);
      const at::Tensor weight = normal_tensor({37, in}, "weight", dtype);
      const at::Tensor bias = normal_tensor({37}, "bias", dtype);
      const at::Tensor weight_there = on_gpu(weight);
      const at::Tensor bias_there = on_gpu(bias);
      const at::Tensor together = kernels::linear_few_rows(on_gpu(x), weight_there, bias_there);
      require_same(kernels::linear_few_rows(x, weight, bias), together, "few rows");
      for (const std::int64_t rows : {1, 3, 5}) {
        const at::Tensor some = x.narrow(0, 7, rows);
        for (const bool shifted : {false, true}) {
          REQUIRE(
              at::equal(kernels::linear_few_rows(on_gpu(some, shifted), weight_there, bias_there),
                        together.narrow(0, 7, rows)));
        }
      }
      require_same(kernels::linear_few_rows(x, weight, {}),
                   kernels::linear_few_rows(on_gpu(x), weight_there, {}),
                   "without bias");
    }
  }
}

}  // namespace colossal::test
