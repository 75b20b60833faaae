// Do ZeRO, Gemini and the memory of the device fit together?
#include "config/rules/rules.hpp"

#include <fmt/format.h>

#include <array>

namespace colossal::detail {
namespace {

void weights_move_with_stage_3(const RuleInput& in) {
  const ZeroConfig& zero = in.config.parallel.zero;
  if (zero.offload != Offload::optimizer_params || zero.stage == 3) {
    return;
  }
  Diagnostic& error =
      in.error("zero-offload",
               "parallel.zero.offload",
               fmt::format("weights stay on the device at stage {}, so they cannot be offloaded",
                           zero.stage));
  error.related.push_back(in.with("parallel.zero.stage"));
  error.why = "only stage 3 cuts weights and gathers them for each block";
  error.fix = "stage: 3, or offload: optimizer";
}

void gemini_takes_the_place_of_zero(const RuleInput& in) {
  const ZeroConfig& zero = in.config.parallel.zero;
  if (!in.config.parallel.gemini) {
    return;
  }
  const bool stage = zero.stage == 1 || zero.stage == 2;
  if (!stage && zero.offload == Offload::none) {
    return;
  }
  const char* path = stage ? "parallel.zero.stage" : "parallel.zero.offload";
  Diagnostic& error =
      in.error("gemini-zero", path, fmt::format("{} cannot be combined with gemini", path));
  error.related.push_back(in.with("parallel.gemini.placement"));
  error.why = "gemini decides what is cut and where it lives";
  error.fix = "remove it, or remove parallel.gemini";
}

void bucket_is_used(const RuleInput& in) {
  if (in.config.parallel.gemini && in.config.parallel.zero.bucket_size) {
    report_unused(in,
                  "parallel.zero.bucket_size",
                  "parallel.gemini.placement",
                  "the length of gemini's chunks is gemini.chunk_size");
  }
}

void offloaded_weights_need_both(const RuleInput& in) {
  if (!in.config.parallel.gemini || in.config.parallel.gemini->placement != Placement::fixed) {
    return;
  }
  const GeminiConfig& gemini = *in.config.parallel.gemini;
  if (gemini.offload_param_frac == 0 ||
      (gemini.shard_param_frac == 1 && gemini.offload_optim_frac == 1)) {
    return;
  }
  Diagnostic& error =
      in.error("gemini-fractions",
               "parallel.gemini.offload_param_frac",
               "weights in host memory need all weights cut and all optimizer states "
               "there, too");
  error.related.push_back(in.with("parallel.gemini.shard_param_frac"));
  error.related.push_back(in.with("parallel.gemini.offload_optim_frac"));
  error.fix = "shard_param_frac: 1 and offload_optim_frac: 1, or offload_param_frac: 0";
}

void measured_device_has_a_size(const RuleInput& in) {
  if (!in.config.parallel.gemini || in.config.parallel.gemini->placement != Placement::automatic ||
      in.config.run.device_memory || in.config.run.device == DeviceKind::cuda) {
    return;
  }
  Diagnostic& error = in.error("gemini-device-memory",
                               "parallel.gemini.placement",
                               "placement auto needs the size of the device");
  error.related.push_back(in.with("run.device"));
  error.why = "it places chunks by what is free, and a cpu has no size of its own";
  error.fix = "run: {device_memory: 8GiB}, or placement: static";
}

/// What `auto` will choose is known when the run starts; what cannot be is known now.
void backend_moves_tensors_of_the_device(const RuleInput& in) {
  const CommBackend backend = in.config.parallel.comm.backend;
  const DeviceKind device = in.config.run.device;
  const bool nccl_alone = backend == CommBackend::nccl && device == DeviceKind::cpu;
  const bool gloo_alone = backend == CommBackend::gloo && device == DeviceKind::cuda;
  if (!nccl_alone && !gloo_alone) {
    return;
  }
  Diagnostic& error =
      in.error(nccl_alone ? "gpu-only" : "comm-backend",
               "parallel.comm.backend",
               nccl_alone ? "nccl moves tensors of GPUs only" : "gloo moves tensors of a cpu only");
  error.related.push_back(in.with("run.device"));
  error.fix = "backend: auto";
}

void steps_are_recorded_on_a_gpu(const RuleInput& in) {
  if (in.config.train.cuda_graph != CudaGraph::on || in.config.run.device != DeviceKind::cpu) {
    return;
  }
  Diagnostic& error = in.error("gpu-only", "train.cuda_graph", "only a GPU can record its steps");
  error.related.push_back(in.with("run.device"));
  error.fix = "cuda_graph: auto";
}

constexpr std::array<Rule, 7> kMemoryRules = {weights_move_with_stage_3,
                                              gemini_takes_the_place_of_zero,
                                              bucket_is_used,
                                              offloaded_weights_need_both,
                                              measured_device_has_a_size,
                                              backend_moves_tensors_of_the_device,
                                              steps_are_recorded_on_a_gpu};

}  // namespace

std::span<const Rule> memory_rules() {
  return kMemoryRules;
}

}  // namespace colossal::detail
