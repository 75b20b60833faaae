// Does every weight have exactly one name elsewhere, in the form that others expect?
#include "models/exchange.hpp"

#include "config/load.hpp"
#include "config/presets.hpp"
#include "core/error.hpp"
#include "mesh/context.hpp"
#include "models/zoo.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace colossal::test {
namespace {

using Json = nlohmann::json;

ModelConfig small_gpt() {
  ModelConfig m;
  m.num_layers = 3;
  m.hidden_size = 12;
  m.num_heads = m.num_kv_heads = 4;
  m.ffn_hidden_size = 20;
  m.vocab_size = 33;
  m.vocab_pad_multiple = 16;
  m.max_seq_length = 7;
  return m;
}

ModelConfig preset(std::string_view name) {
  const detail::Preset& p = *detail::find_preset(name);
  ModelConfig m;
  m.num_layers = p.num_layers;
  m.hidden_size = p.hidden_size;
  m.num_heads = m.num_kv_heads = p.num_heads;
  m.ffn_hidden_size = 4 * p.hidden_size;
  m.vocab_size = p.vocab_size;
  m.max_seq_length = p.max_seq_length;
  return m;
}

/// Parameters that own memory; none has any.
std::vector<ParamSpec> specs_of(const ModelConfig& model) {
  Config config;
  config.model = model;
  const ParallelContext context(config);
  const std::unique_ptr<LayerFactory> layers = serial_factory(context);
  std::vector<ParamSpec> specs;
  for (const BlockDef& def : zoo().make(yaml_word(model.type), model)->blocks(*layers)) {
    const std::unique_ptr<Block> block = def.build();
    for (const Parameter* parameter : block->parameters()) {
      if (parameter->spec().tied_to.empty()) {
        specs.push_back(parameter->spec());
      }
    }
  }
  return specs;
}

std::map<std::string, ExchangedTensor> by_name(const ModelConfig& model,
                                               TiedHead head = TiedHead::once) {
  std::map<std::string, ExchangedTensor> tensors;
  const std::vector<ParamSpec> specs = specs_of(model);
  for (const ExchangedTensor& tensor : exchanged_tensors(model, specs, head)) {
    REQUIRE(tensors.emplace(tensor.name, tensor).second);
  }
  return tensors;
}

/// Names and shapes of GPT2LMHeadModel, from its description (model-zoo section 1).
std::map<std::string, Shape> gpt2_shapes(const ModelConfig& m) {
  const std::int64_t d = m.hidden_size;
  const std::int64_t f = m.ffn_hidden_size;
  std::map<std::string, Shape> shapes = {{"transformer.wte.weight", {m.vocab_size, d}},
                                         {"transformer.wpe.weight", {m.max_seq_length, d}},
                                         {"transformer.ln_f.weight", {d}},
                                         {"transformer.ln_f.bias", {d}}};
  for (std::int64_t i = 0; i < m.num_layers; ++i) {
    const std::string h = "transformer.h." + std::to_string(i) + ".";
    for (const char* norm : {"ln_1", "ln_2"}) {
      shapes[h + norm + ".weight"] = shapes[h + norm + ".bias"] = {d};
    }
    shapes[h + "attn.c_attn.weight"] = {d, 3 * d};
    shapes[h + "attn.c_attn.bias"] = {3 * d};
    shapes[h + "attn.c_proj.weight"] = {d, d};
    shapes[h + "attn.c_proj.bias"] = {d};
    shapes[h + "mlp.c_fc.weight"] = {d, f};
    shapes[h + "mlp.c_fc.bias"] = {f};
    shapes[h + "mlp.c_proj.weight"] = {f, d};
    shapes[h + "mlp.c_proj.bias"] = {d};
  }
  return shapes;
}

Json config_json(const ModelConfig& model, TiedHead head = TiedHead::once) {
  return Json::parse(exchanged_config(model, "float32", head));
}

}  // namespace

TEST_CASE("a GPT has the names and shapes of GPT-2, each once", "[exchange]") {
  const ModelConfig model = small_gpt();
  const auto tensors = by_name(model);
  const auto expected = gpt2_shapes(model);
  CHECK(tensors.size() == expected.size());
  for (const auto& [name, shape] : expected) {
    INFO(name);
    REQUIRE(tensors.contains(name));
    CHECK(tensors.at(name).shape == shape);
  }
}

TEST_CASE("every preset is mapped one to one, without the padding of its vocabulary",
          "[exchange]") {
  for (const std::string_view name : detail::preset_names()) {
    INFO(name);
    const ModelConfig model = preset(name);
    const auto expected = gpt2_shapes(model);
    std::set<std::string> parameters;
    std::int64_t elements = 0;
    std::size_t fitting = 0;
    for (const auto& [tensor_name, tensor] : by_name(model)) {
      parameters.insert(tensor.parameter);
      elements += numel(tensor.shape);
      const auto it = expected.find(tensor_name);
      fitting += it != expected.end() && it->second == tensor.shape ? 1 : 0;
    }
    std::int64_t stored = 0;
    for (const ParamSpec& spec : specs_of(model)) {
      CHECK(parameters.contains(spec.name));
      stored += numel(spec.shape);
    }
    CHECK(fitting == expected.size());
    CHECK(parameters.size() == expected.size());
    CHECK(elements == stored);
  }
  CHECK(by_name(preset("gpt2-124m")).at("transformer.wte.weight").shape == Shape{50257, 768});
}

TEST_CASE("exactly the weights of linear layers are turned", "[exchange]") {
  for (const auto& [name, tensor] : by_name(small_gpt())) {
    INFO(name);
    const bool linear = name.find(".c_") != std::string::npos && name.ends_with(".weight");
    CHECK(tensor.transposed == linear);
  }
}

TEST_CASE("tied embeddings leave once, or twice on request", "[exchange]") {
  ModelConfig model = small_gpt();
  const std::size_t tied = by_name(model).size();
  const auto copied = by_name(model, TiedHead::copied);
  CHECK(copied.size() == tied + 1);
  CHECK(copied.at("lm_head.weight").parameter == "embed.tokens.weight");
  CHECK_FALSE(copied.at("lm_head.weight").transposed);
  CHECK(config_json(model).at("tie_word_embeddings") == true);
  CHECK(config_json(model, TiedHead::copied).at("tie_word_embeddings") == false);
  // The copy directly behind its original: a writer has only one tensor at a time.
  const std::vector<ParamSpec> specs = specs_of(model);
  const auto list = exchanged_tensors(model, specs, TiedHead::copied);
  const auto head = std::ranges::find(list, "lm_head.weight", &ExchangedTensor::name);
  REQUIRE(head != list.begin());
  CHECK(std::prev(head)->parameter == "embed.tokens.weight");

  model.tie_embeddings = false;
  for (const TiedHead head_kind : {TiedHead::once, TiedHead::copied}) {
    const auto untied = by_name(model, head_kind);
    CHECK(untied.size() == tied + 1);
    CHECK(untied.at("lm_head.weight").parameter == "head.weight");
    CHECK(config_json(model, head_kind).at("tie_word_embeddings") == false);
  }
}

TEST_CASE("what GPT-2 cannot compute keeps our names", "[exchange]") {
  ModelConfig gated = small_gpt();
  gated.activation = ActivationKind::swiglu;
  ModelConfig grouped = small_gpt();
  grouped.num_kv_heads = 2;
  for (const ModelConfig& model : {gated, grouped}) {
    CHECK_FALSE(is_gpt2(model));
    for (const ParamSpec& spec : specs_of(model)) {
      const ExchangedTensor tensor = by_name(model).at(spec.name);
      CHECK(tensor.parameter == spec.name);
      CHECK(tensor.shape == spec.shape);
      CHECK_FALSE(tensor.transposed);
    }
    CHECK(by_name(model, TiedHead::copied).contains("head.weight"));
    CHECK(config_json(model).at("model_type") == "colossal-gpt");
  }
  CHECK(config_json(gated).at("activation") == "swiglu");
  CHECK(config_json(grouped).at("num_kv_heads") == 2);
}

TEST_CASE("a multi-layer perceptron keeps its names", "[exchange]") {
  ModelConfig model;
  model.type = ModelType::mlp;
  model.layers = {5, 4};
  model.in_features = 3;
  model.out_features = 2;
  CHECK_FALSE(is_gpt2(model));
  const auto tensors = by_name(model, TiedHead::copied);  // there is nothing to untie
  CHECK(tensors.size() == 6);
  CHECK(tensors.at("layers.1.weight").shape == Shape{4, 5});
  CHECK(tensors.at("head.bias").shape == Shape{2});
  CHECK(config_json(model).at("layers") == Json{5, 4});
  CHECK(config_json(model).at("model_type") == "colossal-mlp");
}

TEST_CASE("config.json says what GPT2Config wants to know", "[exchange]") {
  ModelConfig model = small_gpt();
  model.dropout = 0.25;
  model.attention_dropout = 0.125;
  model.norm_eps = 1e-6;
  const Json json = config_json(model);
  CHECK(json.at("architectures") == Json{"GPT2LMHeadModel"});
  CHECK(json.at("architectures").is_array());
  CHECK(json.at("model_type") == "gpt2");
  CHECK(json.at("n_layer") == 3);
  CHECK(json.at("n_embd") == 12);
  CHECK(json.at("n_head") == 4);
  CHECK(json.at("n_inner") == 20);
  CHECK(json.at("n_positions") == 7);
  CHECK(json.at("vocab_size") == 33);
  CHECK(json.at("layer_norm_epsilon") == 1e-6);
  CHECK(json.at("resid_pdrop") == 0.25);
  CHECK(json.at("embd_pdrop") == 0.25);
  CHECK(json.at("attn_pdrop") == 0.125);
  CHECK(json.at("torch_dtype") == "float32");
  CHECK(json.at("eos_token_id").is_null());
  CHECK(config_json(preset("gpt2-124m")).at("eos_token_id") == 50256);
}

TEST_CASE("activations have the names that mean the same function", "[exchange]") {
  const std::map<ActivationKind, std::string> names = {{ActivationKind::gelu, "gelu"},
                                                       {ActivationKind::gelu_tanh, "gelu_new"},
                                                       {ActivationKind::relu, "relu"}};
  for (const auto& [kind, name] : names) {
    ModelConfig model = small_gpt();
    model.activation = kind;
    CHECK(config_json(model).at("activation_function") == name);
    CHECK(config_differences(model, config_json(model).dump()).empty());
    for (const auto& [other, other_name] : names) {
      const auto lines =
          config_differences(model, Json{{"activation_function", other_name}}.dump());
      CHECK(lines.empty() == (kind == other));
    }
    const auto synonym =
        config_differences(model, R"({"activation_function": "gelu_pytorch_tanh"})");
    CHECK(synonym.empty() == (kind == ActivationKind::gelu_tanh));
  }
}

TEST_CASE("a foreign config.json is compared where it changes results", "[exchange]") {
  const ModelConfig model = small_gpt();
  const auto lines = [&](const std::string& text) { return config_differences(model, text); };
  CHECK(lines("{}").empty());
  CHECK(lines(R"({"n_head": 4, "n_inner": null, "n_ctx": 99, "resid_pdrop": 0.5})").empty());
  CHECK(lines(R"({"layer_norm_epsilon": 0.00001, "n_layer": 3.0})").empty());
  CHECK(lines(R"({"n_head": 3})") == std::vector<std::string>{"n_head: 3 in config.json, 4 here"});
  CHECK(lines(R"({"layer_norm_epsilon": 1e-6})").size() == 1);
  CHECK(lines(R"({"model_type": "llama"})").size() == 1);
  CHECK(lines(R"({"n_layer": 1, "n_embd": 1, "n_positions": 1, "vocab_size": 1})").size() == 4);
  CHECK(lines(R"({"scale_attn_weights": true, "add_cross_attention": false})").empty());
  CHECK(lines(R"({"scale_attn_weights": false})").size() == 1);
  CHECK(lines(R"({"scale_attn_by_inverse_layer_idx": true})").size() == 1);
  for (const char* text : {"", "[]", "{", "3", "\"n_head\""}) {
    INFO(text);
    try {
      (void)lines(text);
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.id() == "weights-config");
      CHECK(error.exit_code() == 5);
    }
  }
}

TEST_CASE("our own config.json is compared, too", "[exchange]") {
  ModelConfig model = small_gpt();
  model.num_kv_heads = 2;
  const std::string text = exchanged_config(model, "bfloat16");
  CHECK(config_differences(model, text).empty());
  model.num_kv_heads = 1;
  CHECK(config_differences(model, text).size() == 1);
  ModelConfig mlp;
  mlp.type = ModelType::mlp;
  CHECK_FALSE(config_differences(mlp, text).empty());
}

TEST_CASE("buffers and prefixes of old files are known", "[exchange]") {
  CHECK(is_mask_buffer("h.0.attn.bias"));
  CHECK(is_mask_buffer("transformer.h.11.attn.masked_bias"));
  CHECK_FALSE(is_mask_buffer("transformer.h.0.attn.c_attn.bias"));
  CHECK_FALSE(is_mask_buffer("blocks.0.attn.qkv.bias"));
  CHECK(without_prefix("transformer.h.0.ln_1.weight") == "h.0.ln_1.weight");
  CHECK(without_prefix("lm_head.weight") == "lm_head.weight");
}

TEST_CASE("a layer that GPT-2 has no name for is a bug of ours", "[exchange]") {
  for (const char* name : {"blocks.0.attn.extra.weight", "extra.weight"}) {
    std::vector<ParamSpec> specs(1);
    specs.front().name = name;
    specs.front().shape = {1};
    try {
      (void)exchanged_tensors(small_gpt(), specs);
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.id() == "exchange-name");
      CHECK(error.exit_code() == 1);
    }
  }
}

}  // namespace colossal::test
