// Which share of what the GPUs could compute did a run use?
#include "train/utilization.hpp"

#include "mesh/device.hpp"
#include "models/zoo.hpp"
#include "train/human.hpp"
#include "train/trainer.hpp"

#include <fmt/format.h>

#include <array>

namespace colossal {
namespace {

struct Card {
  std::string_view word;  ///< in the name of the card
  double half_flops;      ///< of bf16 and fp16
  double tf32_flops;
};

// Dense, as the maker's data sheets say for the SXM form.
constexpr std::array<Card, 2> kCards = {
    {{"H100 80GB HBM3", 989e12, 494e12}, {"H200", 989e12, 494e12}}};

}  // namespace

void StepRate::add(std::int64_t step_tokens, double step_seconds) {
  if (++steps > 1) {
    tokens += step_tokens;
    seconds += step_seconds;
  }
}

std::optional<double> peak_flops(std::string_view gpu, Precision precision) {
  const bool half = precision == Precision::bf16 || precision == Precision::fp16;
  if (!half && precision != Precision::tf32) {
    return std::nullopt;
  }
  for (const Card& card : kCards) {
    if (gpu.find(card.word) != std::string_view::npos) {
      return half ? card.half_flops : card.tf32_flops;
    }
  }
  return std::nullopt;
}

double Utilization::flops_per_token() const {
  constexpr double kOfWeights = 6;
  constexpr double kOfScores = 12;
  return kOfWeights * static_cast<double>(parameters) +
         kOfScores * static_cast<double>(layers * hidden) * static_cast<double>(sequence);
}

double Utilization::share() const {
  return flops_per_token() * tokens_per_second / (peak_flops * gpus);
}

std::optional<Utilization> utilization(const Config& config,
                                       std::string_view gpu,
                                       std::int64_t parameters,
                                       const StepRate& rate) {
  const std::optional<double> peak = peak_flops(gpu, config.train.precision);
  if (!peak || config.model.type != ModelType::gpt || rate.seconds <= 0) {
    return std::nullopt;
  }
  return Utilization{.parameters = parameters,
                     .layers = config.model.num_layers,
                     .hidden = config.model.hidden_size,
                     .sequence = config.data.seq_length,
                     .tokens_per_second = static_cast<double>(rate.tokens) / rate.seconds,
                     .peak_flops = *peak,
                     .gpus = static_cast<int>(config.parallel.data)};
}

std::optional<Utilization> measure_utilization(const Trainer& trainer, const StepRate& rate) {
  const TrainerParts& parts = trainer.parts();
  return utilization(
      parts.config, describe_device(parts.context.device()), num_parameters(parts.blocks), rate);
}

std::string to_text(const Utilization& utilization) {
  constexpr double kTrillion = 1e12;
  return fmt::format(
      "{:.1f}% of {:.0f} TFLOP/s{}: (6 N + 12 L C T) x {} tokens/s, with N = {}, L = {}, C = {}, "
      "T = {} (PaLM)",
      100 * utilization.share(),
      utilization.peak_flops / kTrillion,
      utilization.gpus == 1 ? "" : fmt::format(" on each of {} GPUs", utilization.gpus),
      thousands(static_cast<std::int64_t>(utilization.tokens_per_second)),
      human_count(static_cast<double>(utilization.parameters)),
      utilization.layers,
      utilization.hidden,
      utilization.sequence);
}

}  // namespace colossal
