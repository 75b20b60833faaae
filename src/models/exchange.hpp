// What are our weights called elsewhere? Names and forms of Hugging Face's GPT-2, and what its
// config.json says.
#pragma once

#include "config/config.hpp"
#include "nn/parameter.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colossal {

/// A parameter of ours as a tensor of an exchanged file. Several may stand for one parameter.
struct ExchangedTensor {
  std::string name;         ///< "transformer.h.0.attn.c_attn.weight"
  std::string parameter;    ///< "blocks.0.attn.qkv.weight"
  Shape shape;              ///< in the file
  bool transposed = false;  ///< the file has [in, out] where we have [out, in]
};

/// How tied embeddings leave: as one tensor, or also as the head that readers look for who know no
/// ties.
enum class TiedHead : std::uint8_t { once, copied };

/// Whether GPT2LMHeadModel computes the same function: a gpt without gated feed-forward and grouped
/// heads.
[[nodiscard]] bool is_gpt2(const ModelConfig& model);

/// The tensors of a file, in the order of `parameters`: GPT-2's for is_gpt2(), else our own names
/// and shapes. `parameters`: those that own memory.
[[nodiscard]] std::vector<ExchangedTensor> exchanged_tensors(const ModelConfig& model,
                                                             std::span<const ParamSpec> parameters,
                                                             TiedHead head = TiedHead::once);

/// Whether a tensor of GPT-2 files is no weight: the causal masks that old files carry.
[[nodiscard]] bool is_mask_buffer(std::string_view name);

/// The short name that files of the bare model have: "h.0.ln_1.weight". Others stay as they are.
[[nodiscard]] std::string_view without_prefix(std::string_view name);

/// The text of config.json. `dtype`: "float32" and so on, as torch names it.
[[nodiscard]] std::string exchanged_config(const ModelConfig& model,
                                           std::string_view dtype,
                                           TiedHead head = TiedHead::once);

/// Where a config.json asks for another function than `model` computes: one line for each key,
/// with both values. Keys that it lacks, or that change no result, do not count. Errors: checkpoint
/// "weights-config" if the text is no JSON object.
[[nodiscard]] std::vector<std::string> config_differences(const ModelConfig& model,
                                                          const std::string& text);

}  // namespace colossal
