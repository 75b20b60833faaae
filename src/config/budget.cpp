// How long are a run and its warm-up in optimizer steps, and how large is the padded vocabulary?
#include "config/batch_sizes.hpp"
#include "config/config.hpp"
#include "config/schedule.hpp"
#include "core/error.hpp"

#include <cmath>

namespace colossal {
std::int64_t padded_vocab(const ModelConfig& model) {
  return ceil_div(model.vocab_size, model.vocab_pad_multiple) * model.vocab_pad_multiple;
}

double default_eps(OptimizerType type) noexcept {
  switch (type) {
    case OptimizerType::lamb:
      return 1e-6;
    case OptimizerType::lars:
      return 1e-9;
    case OptimizerType::adamw:
    case OptimizerType::adam:
    case OptimizerType::sgd:
    case OptimizerType::lion:
    case OptimizerType::adafactor:
      break;
  }
  return 1e-8;
}

double effective_lr(const Config& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  const std::int64_t batch = config.train.global_batch_size;
  if (optimizer.lr_scaling == LrScaling::none || !optimizer.base_batch_size || batch == 0) {
    return optimizer.lr;
  }
  const double ratio = static_cast<double>(batch) / static_cast<double>(*optimizer.base_batch_size);
  return optimizer.lr * (optimizer.lr_scaling == LrScaling::sqrt ? std::sqrt(ratio) : ratio);
}

std::int64_t total_steps(const Config& config, std::int64_t train_samples) {
  const TrainConfig& train = config.train;
  if (train.steps) {
    return *train.steps;
  }
  check(train.global_batch_size > 0,
        ErrorKind::internal,
        "unknown-batch",
        "total_steps needs the global batch size, which is unknown before the world size is");
  if (train.samples) {
    return BatchSizes(train).steps_to(*train.samples);
  }
  if (train.tokens) {
    return BatchSizes(train).steps_to(ceil_div(*train.tokens, config.data.seq_length));
  }
  check(train_samples > 0 && train.epochs.has_value(),
        ErrorKind::internal,
        "unknown-epoch",
        "total_steps needs the size of the training set for train.epochs");
  // 1.1 epochs of 50 steps are 55 steps, although the product of the doubles is above 55.
  constexpr double kRounding = 1e-9;
  if (train.batch_ramp) {
    const double samples = *train.epochs * static_cast<double>(train_samples) * (1 - kRounding);
    return BatchSizes(train).steps_to(static_cast<std::int64_t>(std::ceil(samples)));
  }
  const double steps_per_epoch =  // exact where an epoch has whole batches only
      static_cast<double>(train_samples) / static_cast<double>(train.global_batch_size);
  return static_cast<std::int64_t>(std::ceil(*train.epochs * steps_per_epoch * (1 - kRounding)));
}

std::int64_t warmup_steps(const SchedulerConfig& scheduler, std::int64_t total_steps) {
  return scheduler.warmup_steps.value_or(
      std::llround(scheduler.warmup_ratio.value_or(0) * static_cast<double>(total_steps)));
}

double stable_ratio(const SchedulerConfig& scheduler) {
  constexpr double kWsd = 0.8;
  constexpr double kFlatCosine = 0.72;
  return scheduler.stable_ratio.value_or(scheduler.type == SchedulerType::flat_cosine ? kFlatCosine
                                                                                      : kWsd);
}

double wsd_decay_start(const SchedulerConfig& scheduler, std::int64_t total_steps) {
  const std::int64_t end = scheduler.decay_steps
                               ? warmup_steps(scheduler, total_steps) + *scheduler.decay_steps
                               : total_steps;
  return stable_ratio(scheduler) * static_cast<double>(end);
}

}  // namespace colossal
