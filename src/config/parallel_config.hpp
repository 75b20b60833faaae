// What can a run be told about processes and their memory? Section `parallel`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace colossal {
/// Words of this section.
enum class Offload : std::uint8_t { none, optimizer, optimizer_params };
enum class ReduceDtype : std::uint8_t { fp32, same };
enum class UnusedParams : std::uint8_t { error, zero };
enum class Placement : std::uint8_t { fixed, cuda, cpu, constant, automatic };
enum class NvmeBackend : std::uint8_t { automatic, io_uring, pread };
enum class CommBackend : std::uint8_t { automatic, gloo, nccl };

/// YAML section `parallel.comm`.
struct CommConfig {
  CommBackend backend = CommBackend::automatic;
  double init_timeout_seconds = 300;
  double timeout_seconds = 600;
};

/// YAML section `parallel.zero`.
struct ZeroConfig {
  std::int64_t stage = 0;
  Offload offload = Offload::none;
  std::optional<std::int64_t> bucket_size = {};  ///< bytes of a chunk; unset = auto
  bool overlap = true;
  std::int64_t prefetch = 2;  ///< blocks gathered ahead
  ReduceDtype reduce_dtype = ReduceDtype::fp32;
  UnusedParams unused_params = UnusedParams::error;
};

/// YAML section `parallel.gemini.nvme`.
struct NvmeConfig {
  std::string path;                        ///< folder
  double fraction = 1;                     ///< share of the optimizer states on disk
  std::optional<std::int64_t> limit = {};  ///< bytes of all files of a rank; unset: no limit
  NvmeBackend backend = NvmeBackend::automatic;
  std::int64_t queue_depth = 32;
};

/// YAML section `parallel.gemini`.
struct GeminiConfig {
  Placement placement = Placement::fixed;
  double shard_param_frac = 1;
  double offload_optim_frac = 0;
  double offload_param_frac = 0;
  std::int64_t const_budget = 512LL << 20;  ///< bytes
  double steady_cuda_cap_ratio = 0.9;
  double margin_ratio = 0.8;
  std::optional<std::int64_t> chunk_size = {};  ///< bytes; unset = auto: searched
  std::optional<std::int64_t> host_memory =
      {};  ///< bytes per rank; unset = auto: what the host has
  double reserve = 0.05;
  std::optional<NvmeConfig> nvme = {};
};

/// YAML section `parallel`.
struct ParallelConfig {
  std::int64_t data = 0;  ///< `auto` is 0 until the world size is known, then world / (tensor *
                          ///< pipeline * sequence)
  ZeroConfig zero;
  std::optional<GeminiConfig> gemini = {};
  CommConfig comm;
};

}  // namespace colossal
