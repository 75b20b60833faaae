// Which memory policies are there to test?
#pragma once

#include "config/config.hpp"
#include "memory/device_memory.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace colossal::test {

/// A memory policy and how to ask for it.
struct Policy {
  std::string name;
  std::function<void(ParallelConfig&)> choose;
};

/// A stage of ZeRO, in chunks small enough that a tiny model has several.
inline Policy zero(std::int64_t stage, Offload offload = Offload::none, std::int64_t prefetch = 2) {
  return {"zero " + std::to_string(stage) + " offload " +
              std::to_string(static_cast<int>(offload)) + " prefetch " + std::to_string(prefetch),
          [=](ParallelConfig& parallel) {
            parallel.zero.stage = stage;
            parallel.zero.offload = offload;
            parallel.zero.prefetch = prefetch;
            parallel.zero.bucket_size = 4096;
          }};
}

/// A placement of Gemini, in such chunks.
inline Policy gemini(std::string name, const GeminiConfig& config) {
  return {"gemini " + name, [config](ParallelConfig& parallel) {
            parallel.gemini = config;
            parallel.gemini->chunk_size = 4096;
          }};
}

/// A placement, with the budget that `const` needs.
inline GeminiConfig placed(Placement placement) {
  GeminiConfig config;
  config.placement = placement;
  config.const_budget = 48 << 10;
  return config;
}

/// Placement static.
inline GeminiConfig fractions(double shard_param, double offload_optim, double offload_param) {
  GeminiConfig config = placed(Placement::fixed);
  config.shard_param_frac = shard_param;
  config.offload_optim_frac = offload_optim;
  config.offload_param_frac = offload_param;
  return config;
}

inline constexpr std::int64_t kDevice = std::int64_t{256} << 20U;  ///< bytes

/// A device of a size, which placement auto needs, as long as this lives.
class SizedDevice {
 public:
  SizedDevice() { device_memory().set_limit(kDevice); }
  ~SizedDevice() { device_memory().set_limit({}); }
  SizedDevice(const SizedDevice&) = delete;
  SizedDevice& operator=(const SizedDevice&) = delete;
};

/// With a share of the optimizer states on disk.
inline GeminiConfig on_disk(double fraction, GeminiConfig config = placed(Placement::cpu)) {
  config.nvme =
      NvmeConfig{.path = std::filesystem::temp_directory_path().string(), .fraction = fraction};
  return config;
}

/// All of them. Placement auto needs a SizedDevice.
inline std::vector<Policy> policies() {
  return {
      zero(0),
      zero(0, Offload::optimizer),
      zero(1),
      zero(1, Offload::optimizer),
      zero(2),
      zero(2, Offload::optimizer),
      zero(3),
      zero(3, Offload::none, 0),
      zero(3, Offload::optimizer, 1),
      zero(3, Offload::optimizer_params),
      {"zero 3 without overlap",
       [](ParallelConfig& parallel) {
         parallel.zero.stage = 3;
         parallel.zero.overlap = false;
       }},
      gemini("static 0 0 0", fractions(0, 0, 0)),
      gemini("static 0 .5 0", fractions(0, 0.5, 0)),
      gemini("static .5 .5 0", fractions(0.5, 0.5, 0)),
      gemini("static 1 1 .5", fractions(1, 1, 0.5)),
      gemini("cuda", placed(Placement::cuda)),
      gemini("cpu", placed(Placement::cpu)),
      gemini("const", placed(Placement::constant)),
      gemini("auto", placed(Placement::automatic)),
      gemini("half of the states on disk", on_disk(0.5)),
      gemini("all states on disk", on_disk(1)),
      gemini("all states on disk, masters on the device", on_disk(1, placed(Placement::cuda))),
      gemini("half of the masters on the host, most states on disk",
             on_disk(0.75, fractions(1, 0.5, 0))),
      gemini("auto, a quarter of the states on disk", on_disk(0.25, placed(Placement::automatic)))};
}

/// A configuration under a policy.
inline Config with(Config config, const Policy& policy) {
  policy.choose(config.parallel);
  return config;
}

}  // namespace colossal::test
