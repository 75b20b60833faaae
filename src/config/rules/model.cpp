// Do the sizes of the model fit each other and the data?
#include "config/rules/rules.hpp"
#include "config/words.hpp"

#include <fmt/format.h>

#include <array>

namespace colossal::detail {
namespace {

void heads_divide_hidden(const RuleInput& in) {
  const ModelConfig& model = in.config.model;
  if (model.hidden_size % model.num_heads == 0) {
    return;
  }
  Diagnostic& error = in.error(
      "heads-divisible",
      "model.num_heads",
      fmt::format(
          "num_heads {} does not divide hidden_size {}", model.num_heads, model.hidden_size));
  error.related.push_back(in.with("model.hidden_size"));
  error.why = "each head gets hidden_size / num_heads whole channels";
  error.fix = "num_heads: " + nearest_divisors(model.hidden_size, model.num_heads);
}

void kv_heads_divide_heads(const RuleInput& in) {
  const ModelConfig& model = in.config.model;
  if (model.num_heads % model.num_kv_heads == 0) {
    return;
  }
  Diagnostic& error = in.error(
      "kv-heads-divisible",
      "model.num_kv_heads",
      fmt::format(
          "num_kv_heads {} does not divide num_heads {}", model.num_kv_heads, model.num_heads));
  error.related.push_back(in.with("model.num_heads"));
  error.why = "num_heads / num_kv_heads query heads share one key and value head";
  error.fix = "num_kv_heads: " + nearest_divisors(model.num_heads, model.num_kv_heads);
}

void sequence_fits_positions(const RuleInput& in) {
  const std::int64_t length = in.config.data.seq_length;
  const std::int64_t positions = in.config.model.max_seq_length;
  if (length <= positions) {
    return;
  }
  Diagnostic& error =
      in.error("seq-too-long",
               "data.seq_length",
               fmt::format("seq_length {} exceeds max_seq_length {}", length, positions));
  error.related.push_back(in.with("model.max_seq_length"));
  error.why = "the model has one learned position per token of a sample";
  error.fix = fmt::format("seq_length: {} or less, or model.max_seq_length: {}", positions, length);
}

void vocabulary_holds_tokenizer(const RuleInput& in) {
  const auto& tokenizer = in.config.data.tokenizer;
  if (!tokenizer || in.config.model.vocab_size >= tokenizer_size(*tokenizer)) {
    return;
  }
  const std::int64_t needed = tokenizer_size(*tokenizer);
  Diagnostic& error = in.error("vocab-too-small",
                               "model.vocab_size",
                               fmt::format("vocab_size {} is less than the {} ids of the tokenizer",
                                           in.config.model.vocab_size,
                                           needed));
  error.related.push_back(in.with("data.tokenizer.type"));
  error.why = "every token id needs a row of the embedding";
  error.fix = fmt::format("vocab_size: auto, or {} or more", needed);
}

void mlp_reads_rows(const RuleInput& in) {
  const DataConfig& data = in.config.data;
  if (data.type != DataType::synthetic) {
    Diagnostic& error = in.error(
        "model-data", "data.type", fmt::format("an mlp cannot read data.type {}", word(data.type)));
    error.related.push_back(in.with("model.type"));
    error.why = "it classifies rows of features, and only synthetic data has them";
    error.fix = "data: {type: synthetic}";
  }
  if (data.seq_length != 1) {
    Diagnostic& error = in.error(
        "model-data", "data.seq_length", fmt::format("seq_length {} of an mlp", data.seq_length));
    error.related.push_back(in.with("model.type"));
    error.why = "its samples are single rows";
    error.fix = "remove it";
  }
}

/// Roughly, in floating point: sizes at their limits would not fit into 64 bits.
double num_parameters(const ModelConfig& model) {
  const auto real = [](std::int64_t size) { return static_cast<double>(size); };
  if (model.type == ModelType::mlp) {
    double total = 0;
    std::int64_t width = model.in_features;
    for (const std::int64_t next : model.layers) {
      total += real(width) * real(next);
      width = next;
    }
    return total + real(width) * real(model.out_features);
  }
  const double h = real(model.hidden_size);
  const double kv_share = real(model.num_kv_heads) / real(model.num_heads);
  const double block = 2 * h * h * (1 + kv_share) + 2 * h * real(model.ffn_hidden_size);
  return real(model.num_layers) * block + h * real(model.vocab_size + model.max_seq_length);
}

/// Bytes of a model and of its states must be countable, with room for a factor of some thousand.
void parameters_are_countable(const RuleInput& in) {
  constexpr double kMost = 1e14;
  const double number = num_parameters(in.config.model);
  if (number <= kMost) {
    return;
  }
  const char* const key =
      in.config.model.type == ModelType::mlp ? "model.layers" : "model.hidden_size";
  Diagnostic& error = in.error(
      "out-of-range",
      key,
      fmt::format("the model has some {:.1e} parameters, the most are {:.0e}", number, kMost));
  if (in.config.model.type == ModelType::gpt) {
    error.related.push_back(in.with("model.num_layers"));
  }
  error.fix = "choose smaller sizes";
}

constexpr std::array<Rule, 5> kGptRules = {heads_divide_hidden,
                                           kv_heads_divide_heads,
                                           sequence_fits_positions,
                                           vocabulary_holds_tokenizer,
                                           parameters_are_countable};
constexpr std::array<Rule, 2> kMlpRules = {mlp_reads_rows, parameters_are_countable};

}  // namespace

std::span<const Rule> model_rules(ModelType type) {
  switch (type) {
    case ModelType::gpt:
      return kGptRules;
    case ModelType::mlp:
      return kMlpRules;
  }
  return {};
}

}  // namespace colossal::detail
