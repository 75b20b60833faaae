// What can be measured on one device: copies, single operations of the model, updates?
#include "train/bench/parts.hpp"

#include "config/load.hpp"
#include "core/error.hpp"
#include "memory/host_memory.hpp"
#include "nn/trials.hpp"
#include "optim/update.hpp"
#include "train/human.hpp"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <map>
#include <memory>
#include <utility>

namespace colossal {
namespace {

/// Far beyond the caches of the device.
std::int64_t copy_bytes(at::Device device) {
  return device.is_cuda() ? 512 * kMiB : 128 * kMiB;
}

at::Tensor random(std::int64_t numel, at::ScalarType dtype, at::Device device) {
  return at::randn({numel}, at::TensorOptions(at::kFloat).device(device)).to(dtype);
}

/// A copy on the device.
BenchRow copy_row(const BenchPlace& place) {
  const std::int64_t bytes = copy_bytes(place.context.device());
  const at::Tensor from = random(bytes / 4, at::kFloat, place.context.device());
  const at::Tensor to = at::empty_like(from);
  return {.part = "copy",
          .name = "on the device",
          .size = human_binary(static_cast<double>(bytes)),
          .time = measure(
              place.timer, [&] { to.copy_(from); }, place.sampling),
          .amount = 2 * static_cast<double>(bytes)};
}

/// A copy between the host's pinned pages and the GPU.
BenchRow transfer_row(const BenchPlace& place, bool to_gpu) {
  const std::int64_t bytes = 256 * kMiB;
  const at::Tensor host = host_empty(bytes / 4, at::kFloat, HostPages::pinned);
  const at::Tensor gpu = random(bytes / 4, at::kFloat, place.context.device());
  const auto call = [&] {
    to_gpu ? gpu.copy_(host, /*non_blocking=*/true) : host.copy_(gpu, /*non_blocking=*/true);
  };
  return {.part = "copy",
          .name = to_gpu ? "host to GPU, pinned" : "GPU to host, pinned",
          .size = human_binary(static_cast<double>(bytes)),
          .time = measure(place.timer, call, place.sampling),
          .amount = static_cast<double>(bytes)};
}

TrialSizes sizes_of(const BenchPlace& place, std::string_view part) {
  const ModelConfig& model = place.config.model;
  check(model.type == ModelType::gpt,
        ErrorKind::usage,
        "bench-model",
        "bench {0} measures the operations of a gpt, and model.type is {1}\n  fix   give a "
        "configuration of a gpt, or leave {0} out",
        part,
        yaml_word(model.type));
  return {.batch = place.config.train.micro_batch_size,
          .sequence = place.config.data.seq_length,
          .hidden = model.hidden_size,
          .num_heads = model.num_heads,
          .num_kv_heads = model.num_kv_heads,
          .ffn = model.ffn_hidden_size,
          .vocabulary = padded_vocab(model),
          .activation = model.activation,
          .dtype = place.context.dtype(),
          .device = place.context.device()};
}

std::vector<BenchRow> rows_of(const BenchPlace& place,
                              std::string_view part,
                              const std::vector<Trial>& trials) {
  std::vector<BenchRow> rows;
  for (const Trial& trial : trials) {
    const PreparedTrial prepared = trial.prepare();
    const bool moves = prepared.bytes > 0;
    BenchRow& row =
        rows.emplace_back(BenchRow{.part = std::string(part),
                                   .name = trial.name,
                                   .size = trial.size,
                                   .time = measure(place.timer, prepared.call, place.sampling),
                                   .amount = moves ? prepared.bytes : prepared.flops,
                                   .unit = moves ? BenchUnit::bytes : BenchUnit::flops});
    if (moves && place.copy_rate > 0) {
      row.of_copy = row.rate() / place.copy_rate;
    }
  }
  return rows;
}

std::vector<BenchRow> bench_gemm(const BenchPlace& place) {
  return rows_of(place, "gemm", product_trials(sizes_of(place, "gemm")));
}

std::vector<BenchRow> bench_attention(const BenchPlace& place) {
  return rows_of(place, "attention", attention_trials(sizes_of(place, "attention")));
}

std::vector<BenchRow> bench_kernels(const BenchPlace& place) {
  return rows_of(place, "kernels", kernel_trials(sizes_of(place, "kernels")));
}

/// One shard with all that the optimizer keeps beside it.
FlatShard shard_of(const Optimizer& optimizer,
                   const BenchPlace& place,
                   std::int64_t numel,
                   at::Device device) {
  const at::ScalarType dtype = place.context.dtype();
  const at::ScalarType wide = place.context.master_dtype();
  FlatShard shard;
  shard.master = random(numel, wide, device);
  shard.grad = random(numel, dtype, device);
  if (dtype != wide) {
    shard.working = shard.master.to(dtype);
  }
  for (const std::string_view name : optimizer.states()) {
    shard.state.emplace(name, at::zeros({numel}, shard.master.options()));
  }
  shard.segments = {{.param = 0, .begin = 0, .end = numel, .offset = 0}};
  return shard;
}

/// Bytes an update reads and writes at least: gradients once, the working copy once, all else
/// twice.
double update_bytes(const FlatShard& shard) {
  auto bytes = static_cast<double>(2 * shard.master.nbytes() + shard.grad.nbytes());
  bytes += shard.working.defined() ? static_cast<double>(shard.working.nbytes()) : 0;
  for (const auto& [name, state] : shard.state) {
    bytes += 2 * static_cast<double>(state.nbytes());
  }
  return bytes;
}

/// The time of one update, as a row of elements and one of bytes.
void append_update(std::vector<BenchRow>& rows, const BenchPlace& place, at::Device device) {
  OptimizerConfig config = place.config.optimizer;
  config.state_dtype = StateDtype::fp32;
  const std::unique_ptr<Optimizer> optimizer = optimizers().make(yaml_word(config.type), config);
  const std::int64_t numel = (device.is_cuda() ? 128 : 32) * kMiB;
  std::vector<FlatShard> shards = {shard_of(*optimizer, place, numel, device)};
  const std::vector<ParamGroup> groups = {{.lr_scale = 1, .weight_decay = 0.1}};
  constexpr std::int64_t kColumns = 4096;
  ParamSpec spec;
  spec.shape = {numel / kColumns, kColumns};
  Parameter parameter(spec);
  const std::vector<Parameter*> parameters = {&parameter};
  const ParallelContext alone(Config{}, device);
  optimizer->prepare(parameters, alone.mesh());
  std::int64_t step = 0;
  const auto call = [&] {
    apply_update(
        *optimizer,
        [&](StateAccess /*access*/, const ShardCall& sweep) { sweep(shards); },
        groups,
        {.step = step++, .lr = 1e-4, .grad_factor = 0.5},
        parameters,
        alone);
  };
  BenchRow row{.part = "adam",
               .name = yaml_word(config.type) + (device.is_cuda() ? "" : " on the cpu"),
               .size = human_count(static_cast<double>(numel)),
               .time = measure(*make_device_timer(device), call, place.sampling),
               .amount = static_cast<double>(numel),
               .unit = BenchUnit::elements};
  rows.push_back(row);
  row.name += ", memory";
  row.amount = update_bytes(shards[0]);
  row.unit = BenchUnit::bytes;
  if (device == place.context.device() && place.copy_rate > 0) {
    row.of_copy = row.rate() / place.copy_rate;
  }
  rows.push_back(std::move(row));
}

constexpr std::array<BenchPart, 7> kParts = {{{"copy", bench_copy},
                                              {"gemm", bench_gemm},
                                              {"attention", bench_attention},
                                              {"kernels", bench_kernels},
                                              {"adam", bench_adam},
                                              {"collectives", bench_collectives},
                                              {"step", bench_step}}};

}  // namespace

std::span<const BenchPart> bench_parts() {
  return kParts;
}

double measure_copy_rate(const BenchPlace& place) {
  return copy_row(place).rate();
}

std::vector<BenchRow> bench_copy(const BenchPlace& place) {
  std::vector<BenchRow> rows = {copy_row(place)};
  if (place.context.device().is_cuda()) {
    rows.push_back(transfer_row(place, true));
    rows.push_back(transfer_row(place, false));
  }
  return rows;
}

std::vector<BenchRow> bench_adam(const BenchPlace& place) {
  std::vector<BenchRow> rows;
  append_update(rows, place, place.context.device());
  if (place.context.device().is_cuda()) {
    append_update(rows, place, at::kCPU);  // as with offload
  }
  return rows;
}

}  // namespace colossal
