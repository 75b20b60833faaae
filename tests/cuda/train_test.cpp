// Does a GPU learn what a CPU learns? The same losses and weights, whatever the model, the memory
// policy and the place of a checkpoint.
#include "core/error.hpp"
#include "cuda/fast_gpt.hpp"
#include "cuda/kernel_helpers.hpp"
#include "cuda/trained.hpp"
#include "memory/device_memory.hpp"
#include "support/close.hpp"
#include "support/gpu.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_models.hpp"
#include "support/training.hpp"
#include "train/device_batch.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace colossal::test {
namespace {

void check_same(const Config& config, double tolerance, double weights) {
  const Trained cpu = train(config, ParallelContext(config));
  const Trained gpu = train(config, ParallelContext(config, kGpu));
  check_losses_and_norms(cpu, gpu, tolerance);
  for (const auto& [name, tensor] : cpu.tensors) {
    require_close(tensor, gpu.tensors.at(name), weights, name);
  }
}

using Choose = std::function<void(ParallelConfig&)>;

Choose gemini(Placement placement, double optim = 0, double param = 0) {
  return [=](ParallelConfig& parallel) {
    parallel.gemini = GeminiConfig{};
    parallel.gemini->placement = placement;
    parallel.gemini->offload_optim_frac = optim;
    parallel.gemini->offload_param_frac = param;
    parallel.gemini->const_budget = 48 << 10;  // two blocks of tiny_gpt()
    parallel.gemini->chunk_size = 4096;
  };
}

/// All optimizer states on disk.
Choose on_disk(const Choose& choose) {
  return [=](ParallelConfig& parallel) {
    choose(parallel);
    parallel.gemini->nvme =
        NvmeConfig{.path = std::filesystem::temp_directory_path().string(), .fraction = 1};
  };
}

Choose zero(std::int64_t stage, Offload offload) {
  return [=](ParallelConfig& parallel) {
    parallel.zero.stage = stage;
    parallel.zero.offload = offload;
    parallel.zero.bucket_size = 4096;
  };
}

std::vector<std::pair<std::string, Choose>> policies() {
  return {{"zero 0, optimizer on the host", zero(0, Offload::optimizer)},
          {"zero 1", zero(1, Offload::none)},
          {"zero 2", zero(2, Offload::none)},
          {"zero 2, optimizer on the host", zero(2, Offload::optimizer)},
          {"zero 3", zero(3, Offload::none)},
          {"zero 3, all on the host", zero(3, Offload::optimizer_params)},
          {"gemini, half of the optimizer on the host", gemini(Placement::fixed, 0.5)},
          {"gemini, all on the host", gemini(Placement::cpu)},
          {"gemini, a budget", gemini(Placement::constant)},
          {"gemini, on the device", gemini(Placement::cuda)},
          {"gemini, states on disk", on_disk(gemini(Placement::cpu))},
          {"gemini, states on disk, masters on the device", on_disk(gemini(Placement::cuda))}};
}

}  // namespace

TEST_CASE("a GPT in fp32 has the losses of a CPU, dropout included", "[cuda][train]") {
  NEEDS_GPUS(1)
  check_same(in(tiny_gpt(), Precision::fp32), 1e-5, 1e-3);
}

TEST_CASE("tf32 is fp32 with rounded factors, in products and in training", "[cuda][train]") {
  NEEDS_GPUS(1)
  const at::Tensor a = normal_tensor({512, 512}, "a").to(kGpu);
  const at::Tensor b = normal_tensor({512, 512}, "b").to(kGpu);
  const at::Tensor exact = at::mm(a, b);
  const auto off = [&] {
    return scaled_distance(exact, at::mm(a.to(at::kFloat), b.to(at::kFloat)).to(at::kDouble));
  };
  struct Rounded {
    Rounded() { allow_tf32(kGpu); }
    ~Rounded() { use_device(kGpu); }
  };
  double rounded = 0;
  {
    const Rounded products;
    rounded = off();
    const Config config = in(tiny_gpt(), Precision::tf32);
    check_losses_and_norms(
        train(config, ParallelContext(config)), train(config, ParallelContext(config, kGpu)), 1e-2);
  }
  CHECK(off() < 1e-6);
  CHECK(rounded > 1e-5);
  CHECK(rounded < 2e-3);
}

TEST_CASE("a GPT in fp64 has the losses of a CPU", "[cuda][train]") {
  NEEDS_GPUS(1)
  check_same(in(tiny_gpt(), Precision::fp64), 1e-9, 1e-6);
}

TEST_CASE("a classifier has the losses of a CPU", "[cuda][train]") {
  NEEDS_GPUS(1)
  check_same(in(tiny_mlp(), Precision::fp32), 1e-5, 1e-3);
}

TEST_CASE("lion and adafactor have the losses of a CPU", "[cuda][train]") {
  NEEDS_GPUS(1)
  for (const OptimizerType type : {OptimizerType::lion, OptimizerType::adafactor}) {
    INFO(yaml_word(type));
    Config config = in(tiny_gpt(), Precision::fp64);
    config.optimizer.type = type;
    config.optimizer.lr = 2e-3;
    check_losses_and_norms(
        train(config, ParallelContext(config)), train(config, ParallelContext(config, kGpu)), 1e-7);
  }
}

TEST_CASE("smoothed labels have the losses of a CPU", "[cuda][train]") {
  NEEDS_GPUS(1)
  const auto smoothed = [](Config config) {
    config.train.label_smoothing = 0.2;
    return config;
  };
  check_same(smoothed(in(tiny_gpt(), Precision::fp32)), 1e-5, 1e-3);
  check_same(smoothed(in(tiny_mlp(), Precision::fp32)), 1e-5, 1e-3);
  const Config fast = fast_gpt(Precision::bf16);
  const auto on_gpu = [](const Config& config) {
    return train(config, ParallelContext(config, kGpu));
  };
  const Trained plain = on_gpu(fast);
  const Trained gpu = on_gpu(smoothed(fast));
  const Config on_cpu = smoothed(fast);
  check_losses_and_norms(train(on_cpu, ParallelContext(on_cpu)), gpu, 2e-2);
  CHECK(gpu.reports.back().loss > plain.reports.back().loss);
}

TEST_CASE("accumulation and recomputation change nothing on a GPU", "[cuda][train]") {
  NEEDS_GPUS(1)
  Config config = split(in(tiny_gpt(), Precision::fp32), 1, 4);
  check_same(config, 1e-5, 1e-3);
  config.train.activation_checkpoint.mode = RecomputeMode::full;
  check_same(config, 1e-5, 1e-3);
  config.train.activation_checkpoint.mode = RecomputeMode::selective;
  check_same(config, 1e-5, 1e-3);
}

TEST_CASE("bf16 on a GPU learns what bf16 on a CPU learns", "[cuda][train]") {
  NEEDS_GPUS(1)
  const Config config = in(tiny_gpt(), Precision::bf16);
  check_losses_and_norms(
      train(config, ParallelContext(config)), train(config, ParallelContext(config, kGpu)), 2e-2);
}

TEST_CASE("every memory policy gives a GPU's losses", "[cuda][train]") {
  NEEDS_GPUS(1)
  for (const Config& config : {in(tiny_gpt(), Precision::fp32),
                               in(tiny_gpt(), Precision::bf16),
                               fast_gpt(Precision::bf16)}) {
    const bool exact = config.train.precision == Precision::fp32;
    const Trained whole = train(config, ParallelContext(config, kGpu));
    for (const auto& [name, choose] : policies()) {
      for (const std::int64_t accumulation : {1, 2}) {
        INFO(name << ", accumulation " << accumulation);
        Config placed = split(config, 1, accumulation);
        choose(placed.parallel);
        if (placed.parallel.gemini && placed.model.hidden_size > 16) {
          placed.parallel.gemini->const_budget = 512 << 10;
        }
        const Trained run = train(placed, ParallelContext(placed, kGpu));
        check_losses_and_norms(whole, run, exact ? 1e-5 : 2e-2);
      }
    }
  }
}

TEST_CASE("placement auto moves optimizers to a GPU that has room", "[cuda][train]") {
  NEEDS_GPUS(1)
  count_device_memory(kGpu);
  for (const Config& config : {in(tiny_gpt(), Precision::fp32),
                               in(tiny_gpt(), Precision::bf16),
                               fast_gpt(Precision::bf16)}) {
    const bool exact = config.train.precision == Precision::fp32;
    const Trained whole = train(config, ParallelContext(config, kGpu));
    Config placed = config;
    gemini(Placement::automatic)(placed.parallel);
    const ParallelContext context(placed, kGpu);
    Trainer trainer(build(placed, context, {}), {});
    check_losses_and_norms(whole, finish(trainer), exact ? 1e-5 : 2e-2);
    const ChunkStore& store = *trainer.parts().store;
    for (const FlatShard& shard : trainer.parts().store->shards()) {
      CHECK(shard.master.is_cuda());
      CHECK(shard.working.defined() != exact);
      CHECK((exact || shard.working.is_cuda()));
    }
    for (const ChunkSpec& chunk : store.plan().chunks) {
      CHECK(chunk.resident);
    }
    CHECK(store.counters().gathers == 0);
    CHECK(store.counters().crossed_bytes == 0);
  }
  count_device_memory(at::kCPU);
}

TEST_CASE("a checkpoint of a GPU goes on on a CPU, and back", "[cuda][train]") {
  NEEDS_GPUS(1)
  const Config config = in(tiny_gpt(), Precision::fp32);
  const ParallelContext cpu(config);
  const ParallelContext gpu(config, kGpu);
  const Trained whole = train(config, cpu);
  for (const auto& [first, second] : {std::pair(&gpu, &cpu), std::pair(&cpu, &gpu)}) {
    const TempDir folder;
    const auto begun = make_trainer(config, *first, 3);
    static_cast<void>(finish(*begun));
    const auto saved = save(*begun, folder.path(), cpu.comm(data_axes()));
    const auto resumed = make_trainer(config, *second, config.train.steps.value(), saved);
    const Trained rest = finish(*resumed);
    REQUIRE(rest.reports.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      require_relative(whole.reports[3 + i].loss, rest.reports[i].loss, 1e-5, "loss");
    }
  }
}

TEST_CASE("tokens and labels that a model does not know are refused on the way to a GPU",
          "[cuda][train]") {
  NEEDS_GPUS(1)
  const Config config = tiny_gpt();
  const auto id_of = [&](std::int64_t token, std::int64_t label) {
    Batch batch;
    batch.fields["tokens"] = at::full({2, 3}, token, at::kLong);
    batch.fields["labels"] = at::full({2, 3}, label, at::kLong);
    try {
      const Batch moved = to_device(std::move(batch), config.model, kGpu);
      CHECK(moved.at("tokens").is_cuda());
    } catch (const Error& error) {
      return std::string(error.id());
    }
    return std::string();
  };
  CHECK(id_of(60, 60).empty());
  CHECK(id_of(0, kIgnoreLabel).empty());
  CHECK(id_of(61, 60) == "token-range");
  CHECK(id_of(-1, 60) == "token-range");
  CHECK(id_of(60, 61) == "label-range");
  CHECK(id_of(60, -1) == "label-range");
}

TEST_CASE("two runs on a GPU are equal to the last bit", "[cuda][train]") {
  NEEDS_GPUS(1)
  const Config config = in(tiny_gpt(), Precision::bf16);
  const Trained first = train(config, ParallelContext(config, kGpu));
  const Trained second = train(config, ParallelContext(config, kGpu));
  for (std::size_t i = 0; i < first.reports.size(); ++i) {
    CHECK(first.reports[i].loss == second.reports[i].loss);
  }
}

}  // namespace colossal::test
