// Which share of what the GPUs could compute did a run use? The convention of PaLM.
#pragma once

#include "config/config.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace colossal {

class Trainer;

/// Tokens and seconds of the steps of this process but the first, which loads code and tries out
/// kernels. Hooks, evaluations and saves are not in it.
struct StepRate {
  std::int64_t steps = 0;  ///< the first one, too
  std::int64_t tokens = 0;
  double seconds = 0;
  void add(std::int64_t step_tokens, double step_seconds);
};

/// FLOP a second that a GPU can do at most in products of dense matrices of this precision; unset
/// for cards and precisions that are not in the table (H100 and H200, bf16 and fp16).
[[nodiscard]] std::optional<double> peak_flops(std::string_view gpu, Precision precision);

/// What a run reached of its GPUs' peak.
struct Utilization {
  std::int64_t parameters = 0;   ///< N
  std::int64_t layers = 0;       ///< L
  std::int64_t hidden = 0;       ///< C, heads times their size
  std::int64_t sequence = 0;     ///< T
  double tokens_per_second = 0;  ///< of all GPUs
  double peak_flops = 0;         ///< of one
  int gpus = 1;
  /// 6 N + 12 L C T: forward and backward of every weight and of all scores, the masked ones
  /// too; nothing for what is computed again. Source: Chowdhery et al. 2022, appendix B.
  [[nodiscard]] double flops_per_token() const;
  /// Model FLOP utilization, 0 to 1.
  [[nodiscard]] double share() const;
};

/// Empty unless the run is of a gpt on GPUs of a known peak, and more than one step was timed.
/// `gpu`: the name of the card.
[[nodiscard]] std::optional<Utilization> utilization(const Config& config,
                                                     std::string_view gpu,
                                                     std::int64_t parameters,
                                                     const StepRate& rate);

/// The same of a run that has ended.
[[nodiscard]] std::optional<Utilization> measure_utilization(const Trainer& trainer,
                                                             const StepRate& rate);

/// "41.3% of 989 TFLOP/s on each of 2 GPUs: (6 N + 12 L C T) x 182,400 tokens/s, ...".
[[nodiscard]] std::string to_text(const Utilization& utilization);

}  // namespace colossal
