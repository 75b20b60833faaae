// The loop over blocks of inference, and how the weights get into it.
#include "infer/decoder.hpp"

#include "checkpoint/checkpoint.hpp"
#include "config/load.hpp"
#include "core/error.hpp"
#include "models/zoo.hpp"
#include "nn/kernels/few_rows.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>

namespace colossal {
namespace {

at::Tensor row_of(std::span<const std::int64_t> values) {
  at::Tensor row = at::empty({std::ssize(values)}, at::kLong);
  std::ranges::copy(values, row.mutable_data_ptr<std::int64_t>());
  return row;
}

/// The precision of the weights in a checkpoint: masters are stored in fp32, or fp64.
Config with_master_precision(Config config) {
  if (config.train.precision != Precision::fp64) {
    config.train.precision = Precision::fp32;
  }
  return config;
}

}  // namespace

Decoder::Decoder(const Config& config, std::int64_t num_slots)
    : context_(with_master_precision(config)),
      vocabulary_(config.model.vocab_size),
      cache_(num_slots, config.model.max_seq_length),
      layers_(serial_factory(context_, cache_)) {
  check(config.model.type == ModelType::gpt,
        ErrorKind::config,
        "not-generative",
        "the model of this configuration predicts no next token: only model.type gpt does");
  check(num_slots <= kernels::kFewRows,
        ErrorKind::internal,
        "too-many-slots",
        "{} sequences at once, at most {} keep their results independent",
        num_slots,
        kernels::kFewRows);
  for (const BlockDef& def :
       zoo().make(yaml_word(config.model.type), config.model)->blocks(*layers_)) {
    blocks_.push_back(def.build());
    const std::vector<Parameter*> some = blocks_.back()->parameters();
    parameters_.insert(parameters_.end(), some.begin(), some.end());
  }
  materialize(parameters_, context_);
}

void Decoder::load(const std::filesystem::path& checkpoint) {
  std::vector<TensorRecord> records;
  for (const Parameter* const parameter : parameters_) {
    const ParamSpec& spec = parameter->spec();
    if (spec.tied_to.empty()) {
      records.push_back({"model/" + spec.name,
                         spec.shape,
                         parameter->tensor(),
                         logical_regions(spec, context_.mesh()),
                         true});
    }
  }
  load_tensors(checkpoint, records, context_.comm({}));
}

at::Tensor Decoder::prefill(std::int64_t slot, std::span<const std::int64_t> tokens) {
  cache_.clear(slot);
  return run({&slot, 1}, row_of(tokens).unsqueeze(0)).select(0, 0);
}

at::Tensor Decoder::step(std::span<const std::int64_t> slots,
                         std::span<const std::int64_t> tokens) {
  return run(slots, row_of(tokens).unsqueeze(1));
}

at::Tensor Decoder::run(std::span<const std::int64_t> slots, const at::Tensor& tokens_bs) {
  const at::NoGradGuard no_grad;
  cache_.select(slots);
  std::vector<std::int64_t> seen;
  for (const std::int64_t slot : slots) {
    seen.push_back(cache_.length(slot));
  }
  const std::int64_t added = tokens_bs.size(1);
  Batch batch;
  batch.training = false;
  batch.fields["tokens"] = tokens_bs;
  batch.fields["positions"] = row_of(seen).unsqueeze(1).add(at::arange(added, tokens_bs.options()));
  Activation x;
  for (const std::unique_ptr<Block>& block : blocks_) {
    if (block == blocks_.back() && added > 1) {
      // Only the last token's logits are wanted, and a vocabulary is wide.
      x.set("hidden", x["hidden"].narrow(1, added - 1, 1));
    }
    x = block->forward(x, batch);
  }
  cache_.advance(added);
  return x["logits"].select(1, 0);
}

}  // namespace colossal
