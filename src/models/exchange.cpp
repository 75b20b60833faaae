// How do our names become GPT-2's? By one table of layers.
#include "models/exchange.hpp"

#include "config/load.hpp"
#include "core/error.hpp"
#include "core/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace colossal {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPrefix = "transformer.";
constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kOwnHead = "head.weight";
constexpr std::string_view kTanh = "gelu_new";

/// One layer, by both names. Conv1D is GPT-2's linear layer, whose weight is [in, out].
struct LayerNames {
  std::string_view ours;
  std::string_view theirs;
  bool conv1d = false;
};

constexpr std::array<LayerNames, 3> kOutside = {{
    {"embed.tokens", "wte"},
    {"embed.positions", "wpe"},
    {"norm", "ln_f"},
}};
constexpr std::array<LayerNames, 6> kInBlocks = {{
    {"norm1", "ln_1"},
    {"attn.qkv", "attn.c_attn", true},  // q, k and v behind each other, heads inside: as ours
    {"attn.out", "attn.c_proj", true},
    {"norm2", "ln_2"},
    {"mlp.up", "mlp.c_fc", true},
    {"mlp.down", "mlp.c_proj", true},
}};

const LayerNames& layer_of(std::span<const LayerNames> layers, std::string_view ours) {
  const auto it = std::ranges::find(layers, ours, &LayerNames::ours);
  check(it != layers.end(),
        ErrorKind::internal,
        "exchange-name",
        "layer '{}' of a GPT has no name in GPT-2 files",
        ours);
  return *it;
}

/// {"blocks.3.", "attn.qkv", ".weight"} of a parameter's name; the first part may be empty.
struct NameParts {
  std::string_view block;  ///< "3"
  std::string_view layer;
  std::string_view kind;
};

NameParts parts_of(std::string_view name) {
  constexpr std::string_view kBlocks = "blocks.";
  NameParts parts;
  const std::size_t dot = name.rfind('.');
  parts.kind = name.substr(dot);
  parts.layer = name.substr(0, dot);
  if (parts.layer.starts_with(kBlocks)) {
    parts.layer.remove_prefix(kBlocks.size());
    parts.block = parts.layer.substr(0, parts.layer.find('.'));
    parts.layer.remove_prefix(parts.block.size() + 1);
  }
  return parts;
}

ExchangedTensor gpt2_tensor(const ParamSpec& spec) {
  if (spec.name == kOwnHead) {
    return {std::string(kHead), spec.name, spec.shape};
  }
  const auto [block, layer, kind] = parts_of(spec.name);
  const bool inside = !block.empty();
  const LayerNames& known = inside ? layer_of(kInBlocks, layer) : layer_of(kOutside, layer);
  ExchangedTensor tensor{
      fmt::format(
          "{}{}{}{}", kPrefix, inside ? fmt::format("h.{}.", block) : "", known.theirs, kind),
      spec.name,
      spec.shape,
      known.conv1d && kind == ".weight"};
  if (tensor.transposed) {
    std::ranges::reverse(tensor.shape);
  }
  return tensor;
}

std::string_view gpt2_activation(ActivationKind kind) {
  return kind == ActivationKind::gelu ? "gelu" : kind == ActivationKind::relu ? "relu" : kTanh;
}

Json gpt2_config(const ModelConfig& m, bool tied) {
  // <|endoftext|> of GPT-2's own vocabulary; no id of other ones has a meaning of its own.
  constexpr std::int64_t kGpt2Vocabulary = 50257;
  const Json end = m.vocab_size == kGpt2Vocabulary ? Json(kGpt2Vocabulary - 1) : Json(nullptr);
  return {{"architectures", Json::array({"GPT2LMHeadModel"})},
          {"model_type", "gpt2"},
          {"n_layer", m.num_layers},
          {"n_embd", m.hidden_size},
          {"n_head", m.num_heads},
          {"n_inner", m.ffn_hidden_size},
          {"n_positions", m.max_seq_length},
          {"vocab_size", m.vocab_size},
          {"activation_function", gpt2_activation(m.activation)},
          {"layer_norm_epsilon", m.norm_eps},
          {"tie_word_embeddings", tied},
          {"embd_pdrop", m.dropout},
          {"resid_pdrop", m.dropout},
          {"attn_pdrop", m.attention_dropout},
          {"initializer_range", m.init_std},
          {"bos_token_id", end},
          {"eos_token_id", end}};
}

/// Keys of the section `model`, which no other program reads but people do.
Json own_config(const ModelConfig& m, bool tied) {
  if (m.type == ModelType::mlp) {
    return {{"model_type", "colossal-mlp"},
            {"layers", m.layers},
            {"in_features", m.in_features},
            {"out_features", m.out_features}};
  }
  return {{"model_type", "colossal-gpt"},
          {"num_layers", m.num_layers},
          {"hidden_size", m.hidden_size},
          {"num_heads", m.num_heads},
          {"num_kv_heads", m.num_kv_heads},
          {"ffn_hidden_size", m.ffn_hidden_size},
          {"max_seq_length", m.max_seq_length},
          {"vocab_size", m.vocab_size},
          {"activation", yaml_word(m.activation)},
          {"norm_eps", m.norm_eps},
          {"tie_embeddings", tied}};
}

Json config_of(const ModelConfig& model, TiedHead head) {
  const bool tied = model.tie_embeddings && head == TiedHead::once;
  return is_gpt2(model) ? gpt2_config(model, tied) : own_config(model, tied);
}

/// Keys of our own config.json that change no result of the model.
bool is_free(std::string_view key) {
  constexpr std::array<std::string_view, 9> kFree = {"architectures",
                                                     "embd_pdrop",
                                                     "resid_pdrop",
                                                     "attn_pdrop",
                                                     "initializer_range",
                                                     "bos_token_id",
                                                     "eos_token_id",
                                                     "tie_word_embeddings",  // the tensors decide
                                                     "tie_embeddings"};
  return std::ranges::find(kFree, key) != kFree.end();
}

/// Switches of GPT-2 at other values than ours, which its files name only if they are used.
constexpr std::array<std::pair<std::string_view, bool>, 3> kSwitches = {
    {{"scale_attn_weights", true},
     {"scale_attn_by_inverse_layer_idx", false},
     {"add_cross_attention", false}}};

}  // namespace

bool is_gpt2(const ModelConfig& model) {
  return model.type == ModelType::gpt && model.activation != ActivationKind::swiglu &&
         model.num_kv_heads == model.num_heads;
}

std::vector<ExchangedTensor> exchanged_tensors(const ModelConfig& model,
                                               std::span<const ParamSpec> parameters,
                                               TiedHead head) {
  const bool gpt2 = is_gpt2(model);
  std::vector<ExchangedTensor> tensors;
  for (const ParamSpec& spec : parameters) {
    tensors.push_back(gpt2 ? gpt2_tensor(spec) : ExchangedTensor{spec.name, spec.name, spec.shape});
    if (head == TiedHead::copied && model.tie_embeddings && spec.name == "embed.tokens.weight") {
      tensors.push_back({std::string(gpt2 ? kHead : kOwnHead), spec.name, spec.shape});
    }
  }
  return tensors;
}

bool is_mask_buffer(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

std::string_view without_prefix(std::string_view name) {
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

std::string exchanged_config(const ModelConfig& model, std::string_view dtype, TiedHead head) {
  Json json = config_of(model, head);
  json["torch_dtype"] = dtype;
  return json.dump(2) + "\n";
}

std::vector<std::string> config_differences(const ModelConfig& model, const std::string& text) {
  const Json found = Json::parse(text, nullptr, false);
  check(found.is_object(),
        ErrorKind::checkpoint,
        "weights-config",
        "config.json beside the weights is no JSON object");
  std::vector<std::string> lines;
  const auto compare = [&](const std::string& key, const Json& ours) {
    const auto it = found.find(key);
    const bool same = it == found.end() || it->is_null() || *it == ours ||
                      (ours == kTanh && *it == "gelu_pytorch_tanh");  // two names of one function
    if (!same) {
      lines.push_back(fmt::format("{}: {} in config.json, {} here", key, it->dump(), ours.dump()));
    }
  };
  const Json wanted = config_of(model, TiedHead::once);
  for (const auto& [key, ours] : wanted.items()) {
    if (!is_free(key)) {
      compare(key, ours);
    }
  }
  for (const auto& [key, ours] : kSwitches) {
    compare(std::string(key), ours);
  }
  return lines;
}

}  // namespace colossal
