// Do weights leave and come back unchanged, and is everything refused that would compute something
// else?
#include "infer/exchange.hpp"

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/safetensors.hpp"
#include "config/load.hpp"
#include "infer/decoder.hpp"
#include "support/temp_dir.hpp"
#include "unit/infer/infer_helpers.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace colossal::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Weights = std::vector<std::pair<std::string, at::Tensor>>;

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void write_weights(const fs::path& path, const Weights& weights) {
  std::vector<SafeTensor> entries;
  for (const auto& [name, values] : weights) {
    entries.push_back({.name = name,
                       .dtype = values.scalar_type(),
                       .shape = Shape(values.sizes().begin(), values.sizes().end())});
  }
  SafetensorsWriter writer(path, entries);
  for (const auto& [name, values] : weights) {
    writer.write(values);
  }
  writer.commit();
}

Weights read_weights(const fs::path& path) {
  const SafetensorsFile file(path);
  Weights weights;
  for (const SafeTensor& tensor : file.tensors()) {
    weights.emplace_back(tensor.name, file.read(tensor));
  }
  return weights;
}

at::Tensor& weight(Weights& weights, const std::string& name) {
  for (auto& [known, values] : weights) {
    if (known == name) {
      return values;
    }
  }
  FAIL("no weight " << name);
  return weights.front().second;
}

/// A configuration file around a model of two layers, and the checkpoint of weights of that model.
class Workshop {
 public:
  explicit Workshop(std::string model = "", std::string precision = "fp32")
      : model_(std::move(model)), precision_(std::move(precision)) {
    std::ofstream(config()) << fmt::format(
        "version: 1\n"
        "model:\n  {{type: gpt, num_layers: 2, hidden_size: 32, num_heads: 4, ffn_hidden_size: "
        "48,\n"
        "   vocab_size: 61, vocab_pad_multiple: 16, max_seq_length: 12, init_std: 0.4{}}}\n"
        "data: {{type: synthetic, seq_length: 12}}\n"
        "train: {{steps: 1, global_batch_size: 2, micro_batch_size: 2, precision: {}}}\n"
        "optimizer: {{type: adamw, lr: 1e-3}}\n",
        model_,
        precision_);
  }

  [[nodiscard]] fs::path path(const std::string& name) const { return folder_.path() / name; }
  [[nodiscard]] fs::path config() const { return path("config.yaml"); }
  [[nodiscard]] Config loaded() const { return load(config()).config; }

  /// Saves the weights of `decoder` as training would; returns the root.
  fs::path save(const Decoder& decoder, const std::string& name = "run") const {
    std::vector<TensorRecord> records;
    for (const Parameter* parameter : decoder.parameters()) {
      const ParamSpec& spec = parameter->spec();
      if (spec.tied_to.empty()) {
        const Shape zeros(spec.shape.size(), 0);
        records.push_back(
            {"model/" + spec.name, spec.shape, parameter->tensor(), {{zeros, zeros, spec.shape}}});
      }
    }
    RunState state;
    state.step = 7;
    state.config_yaml = to_yaml(loaded());
    save_checkpoint(path(name), state, records, Comm(), {});
    return path(name);
  }

  /// Saves fresh weights and exports them; returns the file.
  fs::path exported(const std::string& dtype = "fp32", bool untie = false) const {
    const Decoder decoder(loaded(), 1);
    const ExportOptions options{.checkpoint = save(decoder).string(),
                                .output = path("out/model.safetensors").string(),
                                .dtype = dtype,
                                .untie = untie};
    REQUIRE(run_export(options) == 0);
    return options.output;
  }

  void import(const fs::path& file,
              const std::string& name,
              std::vector<std::string> sets = {}) const {
    const int code = run_import({.file = file.string(),
                                 .config = config().string(),
                                 .sets = std::move(sets),
                                 .output = path(name).string(),
                                 .build_id = "test-build"});
    REQUIRE(code == 0);
  }

  /// Imports what must be refused; returns the message.
  std::string refused(ErrorKind kind,
                      const std::string& id,
                      const fs::path& file,
                      std::vector<std::string> sets = {}) const {
    std::string text;
    require_error(kind, id, [&] {
      try {
        import(file, "refused", std::move(sets));
      } catch (const Error& error) {
        text = error.what();
        throw;
      }
    });
    CHECK_FALSE(fs::exists(path("refused")));
    return text;
  }

 private:
  TempDir folder_;
  std::string model_;
  std::string precision_;
};

at::Tensor logits_of(const fs::path& checkpoint, const Config& config) {
  Decoder decoder(config, 1);
  decoder.load(find_checkpoint(checkpoint));
  return decoder.prefill(0, tokens_like(9, config.model.vocab_size));
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const std::string kWte = "transformer.wte.weight";
const std::string kQkv = "transformer.h.0.attn.c_attn.weight";

}  // namespace

TEST_CASE("weights leave and come back bit for bit, whatever the model", "[exchange]") {
  for (const char* model : {"",
                            ", tie_embeddings: false",
                            ", activation: gelu",
                            ", activation: relu, norm_eps: 1e-3",
                            ", activation: swiglu",
                            ", num_kv_heads: 2",
                            ", num_kv_heads: 1, activation: swiglu, tie_embeddings: false"}) {
    for (const char* precision : {"fp32", "bf16"}) {
      INFO(model << " " << precision);
      const Workshop shop(model, precision);
      const fs::path file = shop.exported();
      shop.import(file, "back");
      const std::string diff = inspect(shop.path("back"), {.json = true, .diff = shop.path("run")});
      CHECK(Json::parse(diff).at("diff").at("equal") == true);
      CHECK(at::equal(logits_of(shop.path("back"), shop.loaded()),
                      logits_of(shop.path("run"), shop.loaded())));
      ExportOptions again{.checkpoint = shop.path("back").string(),
                          .output = shop.path("again/model.safetensors").string()};
      REQUIRE(run_export(again) == 0);
      CHECK(text_of(again.output) == text_of(file));
      CHECK(text_of(shop.path("again/config.json")) == text_of(shop.path("out/config.json")));
    }
  }
}

TEST_CASE("fp64 is kept on request and rounded once otherwise", "[exchange]") {
  const Workshop shop("", "fp64");
  Weights wide = read_weights(shop.exported("fp64"));
  CHECK(weight(wide, kWte).scalar_type() == at::kDouble);
  shop.import(shop.path("out/model.safetensors"), "back");
  CHECK(Json::parse(inspect(shop.path("back"), {.json = true, .diff = shop.path("run")}))
            .at("diff")
            .at("equal") == true);
  REQUIRE(run_export({.checkpoint = shop.path("run").string(),
                      .output = shop.path("narrow/model.safetensors").string()}) == 0);
  Weights narrow = read_weights(shop.path("narrow/model.safetensors"));
  CHECK(at::equal(weight(narrow, kQkv), weight(wide, kQkv).to(at::kFloat)));
}

TEST_CASE("16-bit files hold the nearest values, and are read as they are", "[exchange]") {
  const std::map<std::string, at::ScalarType> types = {{"bf16", at::kBFloat16},
                                                       {"fp16", at::kHalf}};
  for (const auto& [word, dtype] : types) {
    const Workshop shop;
    Weights weights = read_weights(shop.exported(word));
    REQUIRE(run_export({.checkpoint = shop.path("run").string(),
                        .output = shop.path("whole/model.safetensors").string()}) == 0);
    Weights whole = read_weights(shop.path("whole/model.safetensors"));
    for (const auto& [name, values] : weights) {
      INFO(word << " " << name);
      CHECK(values.scalar_type() == dtype);
      CHECK(at::equal(values, weight(whole, name).to(dtype)));
    }
    const Json json = Json::parse(text_of(shop.path("out/config.json")));
    CHECK(json.at("torch_dtype") == (word == "bf16" ? "bfloat16" : "float16"));
    shop.import(shop.path("out/model.safetensors"), "back");
    REQUIRE(run_export({.checkpoint = shop.path("back").string(),
                        .output = shop.path("again/model.safetensors").string(),
                        .dtype = word}) == 0);
    CHECK(text_of(shop.path("again/model.safetensors")) ==
          text_of(shop.path("out/model.safetensors")));
  }
}

TEST_CASE("linear weights are turned, padding of the vocabulary stays behind", "[exchange]") {
  const Workshop shop;
  const Decoder decoder(shop.loaded(), 1);
  Weights weights = read_weights(shop.exported());
  for (const Parameter* parameter : decoder.parameters()) {
    const std::string& name = parameter->spec().name;
    if (name == "embed.tokens.weight") {
      CHECK(parameter->tensor().size(0) == 64);
      CHECK(at::equal(weight(weights, kWte), parameter->tensor().narrow(0, 0, 61)));
    } else if (name == "blocks.0.attn.qkv.weight") {
      CHECK(at::equal(weight(weights, kQkv), parameter->tensor().t()));
    } else if (name == "blocks.1.mlp.down.weight") {
      CHECK(
          at::equal(weight(weights, "transformer.h.1.mlp.c_proj.weight"), parameter->tensor().t()));
    }
  }
}

TEST_CASE("what a half cannot hold is not made infinite", "[exchange]") {
  const Workshop shop;
  const Decoder decoder(shop.loaded(), 1);
  for (const Parameter* parameter : decoder.parameters()) {
    if (parameter->spec().name == "blocks.1.attn.out.weight") {
      const at::NoGradGuard no_grad;
      parameter->tensor().select(0, 3).fill_(70000.0);
    }
  }
  ExportOptions options{.checkpoint = shop.save(decoder).string(),
                        .output = shop.path("half/model.safetensors").string(),
                        .dtype = "fp16"};
  require_error(ErrorKind::numerics, "weights-overflow", [&] { run_export(options); });
  CHECK(fs::is_empty(shop.path("half")));
  options.dtype = "bf16";
  CHECK(run_export(options) == 0);
}

TEST_CASE("weights that are not finite are exported as they are", "[exchange]") {
  const Workshop shop;
  const Decoder decoder(shop.loaded(), 1);
  {
    const at::NoGradGuard no_grad;
    decoder.parameters().front()->tensor().select(0, 0).fill_(std::nan(""));
  }
  const ExportOptions options{.checkpoint = shop.save(decoder).string(),
                              .output = shop.path("nan/model.safetensors").string(),
                              .dtype = "fp16"};
  REQUIRE(run_export(options) == 0);
  Weights weights = read_weights(options.output);
  CHECK(weight(weights, kWte).select(0, 0).isnan().all().item<bool>());
  CHECK_FALSE(weight(weights, kWte).select(0, 1).isnan().any().item<bool>());
}

TEST_CASE("a head may come beside tied embeddings if it is the same", "[exchange]") {
  const Workshop shop;
  const fs::path file = shop.exported("fp32", true);
  Weights weights = read_weights(file);
  CHECK(at::equal(weight(weights, "lm_head.weight"), weight(weights, kWte)));
  shop.import(file, "tied");
  shop.import(file, "untied", {"model.tie_embeddings=false"});
  CHECK(mentions(inspect(shop.path("untied"), {.tensors = true, .diff = {}}), "model/head.weight"));
  CHECK_FALSE(
      mentions(inspect(shop.path("tied"), {.tensors = true, .diff = {}}), "model/head.weight"));

  weight(weights, "lm_head.weight").view(-1)[5] = 0.25;
  write_weights(shop.path("other.safetensors"), weights);
  const std::string text =
      shop.refused(ErrorKind::checkpoint, "weights-mismatch", shop.path("other.safetensors"));
  CHECK(mentions(text, "lm_head.weight differs from the embeddings"));
  shop.import(shop.path("other.safetensors"), "other", {"model.tie_embeddings=false"});
}

TEST_CASE("files of the bare model, with masks and in any order, are taken", "[exchange]") {
  const Workshop shop;
  const Weights weights = read_weights(shop.exported());
  Weights bare;
  for (const auto& [name, values] : weights) {
    bare.emplace(bare.begin(), name.substr(std::string("transformer.").size()), values);
  }
  bare.emplace_back("h.0.attn.bias", at::zeros({1, 1, 12, 12}, at::kByte));
  bare.emplace_back("h.1.attn.masked_bias", at::full({}, -1e4));
  write_weights(shop.path("bare.safetensors"), bare);
  shop.import(shop.path("bare.safetensors"), "back");
  CHECK(at::equal(logits_of(shop.path("back"), shop.loaded()),
                  logits_of(shop.path("run"), shop.loaded())));
}

TEST_CASE("everything that does not fit is listed at once", "[exchange]") {
  const Workshop shop;
  Weights weights = read_weights(shop.exported());
  weight(weights, kQkv) = weight(weights, kQkv).t().contiguous();
  weight(weights, "transformer.ln_f.bias") = at::zeros({32}, at::kInt);
  std::erase_if(weights, [](const auto& item) { return item.first == "transformer.wpe.weight"; });
  weights.emplace_back("transformer.h.2.ln_1.weight", at::zeros({32}));
  write_weights(shop.path("bad.safetensors"), weights);
  const std::string text =
      shop.refused(ErrorKind::checkpoint, "weights-mismatch", shop.path("bad.safetensors"));
  INFO(text);
  CHECK(mentions(text, "missing: transformer.wpe.weight"));
  CHECK(mentions(text, "unknown: transformer.h.2.ln_1.weight"));
  CHECK(mentions(text, "shape: " + kQkv + " is [96, 32] in the file, [32, 96] here"));
  CHECK(mentions(text, "type: transformer.ln_f.bias is stored as I32"));
  CHECK(mentions(text, "bad.safetensors"));

  const std::string small = shop.refused(ErrorKind::checkpoint,
                                         "weights-mismatch",
                                         shop.path("out/model.safetensors"),
                                         {"model.hidden_size=16"});
  CHECK(mentions(small, "n_embd: 32 in config.json, 16 here"));
  CHECK(mentions(small, "more"));
}

TEST_CASE("what shapes do not tell, config.json does", "[exchange]") {
  const Workshop shop;
  const fs::path file = shop.exported();
  CHECK(
      mentions(shop.refused(ErrorKind::checkpoint, "weights-mismatch", file, {"model.num_heads=8"}),
               "n_head: 4 in config.json, 8 here"));
  CHECK(mentions(
      shop.refused(ErrorKind::checkpoint, "weights-mismatch", file, {"model.activation=relu"}),
      "activation_function"));
  fs::remove(shop.path("out/config.json"));
  shop.import(file, "trusted", {"model.num_heads=8"});
  std::ofstream(shop.path("out/config.json")) << "[1]";
  CHECK(mentions(shop.refused(ErrorKind::checkpoint, "weights-config", file), "no JSON object"));
}

TEST_CASE("an import is a checkpoint of weights at step 0", "[exchange]") {
  const Workshop shop;
  shop.import(shop.exported(), "back", {"model.dropout=0.1"});
  const RunState state = read_state(find_checkpoint(shop.path("back")));
  CHECK(state.weights_only);
  CHECK(state.step == 0);
  CHECK(state.consumed == 0);
  CHECK(state.build_id == "test-build");
  CHECK(state.data_fingerprint.empty());
  CHECK(mentions(state.config_yaml, "dropout: 0.1"));
  CHECK(mentions(state.config_yaml, "gradient_accumulation: 1"));  // as after a run
  CHECK(mentions(inspect(shop.path("back"), {.verify = true, .diff = {}}), "weights only"));
  CHECK(
      mentions(inspect(shop.path("back"), {.json = true, .diff = {}}), "\"content\": \"weights\""));
  CHECK_FALSE(mentions(inspect(shop.path("run"), {}), "weights only"));
  CHECK_FALSE(read_state(find_checkpoint(shop.path("run"))).weights_only);
}

TEST_CASE("nothing that exists is overwritten", "[exchange]") {
  const Workshop shop;
  const fs::path file = shop.exported();
  const ExportOptions same{.checkpoint = shop.path("run").string(), .output = file.string()};
  require_error(ErrorKind::usage, "file-exists", [&] { run_export(same); });
  const ExportOptions beside{.checkpoint = shop.path("run").string(),
                             .output = shop.path("out/other.safetensors").string()};
  require_error(ErrorKind::usage, "file-exists", [&] { run_export(beside); });
  const auto import_into = [&](const std::string& name) {
    run_import({.file = file.string(),
                .config = shop.config().string(),
                .sets = {},
                .output = shop.path(name).string(),
                .build_id = ""});
  };
  require_error(ErrorKind::config, "output-exists", [&] { import_into("out"); });
  require_error(ErrorKind::config, "output-exists", [&] { import_into("config.yaml"); });
  fs::create_directory(shop.path("empty"));
  import_into("empty");
  CHECK(fs::exists(shop.path("empty/step-00000000/manifest.json")));
}

TEST_CASE("what cannot be read or written is said before anything is made", "[exchange]") {
  const Workshop shop;
  shop.refused(ErrorKind::data, "file-not-found", shop.path("none.safetensors"));
  std::ofstream(shop.path("short.safetensors")) << "1234567";
  shop.refused(ErrorKind::checkpoint, "weights-damaged", shop.path("short.safetensors"));
  require_error(ErrorKind::checkpoint, "checkpoint-none", [&] {
    run_export({.checkpoint = shop.path("none").string(), .output = shop.path("x/y").string()});
  });
  CHECK_FALSE(fs::exists(shop.path("x")));
  const fs::path run = shop.save(Decoder(shop.loaded(), 1));
  std::ofstream(shop.path("file")) << "in the way";
  require_error(ErrorKind::environment, "output-write", [&] {
    run_export({.checkpoint = run.string(), .output = shop.path("file/model").string()});
  });
  CHECK(run_import({.file = "unused",
                    .config = shop.path("none.yaml").string(),
                    .sets = {},
                    .output = shop.path("unmade").string(),
                    .build_id = ""}) == 3);
  CHECK_FALSE(fs::exists(shop.path("unmade")));
}

TEST_CASE("a damaged checkpoint leaves no half of a file", "[exchange]") {
  const Workshop shop;
  const fs::path run = shop.save(Decoder(shop.loaded(), 1));
  const fs::path rank_file = find_checkpoint(run) / "rank-0000.h5";
  std::fstream file(rank_file, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(fs::file_size(rank_file) / 2));
  file << "damage";
  file.close();
  require_error(ErrorKind::checkpoint, "checkpoint-checksum", [&] {
    run_export({.checkpoint = run.string(), .output = shop.path("out/model").string()});
  });
  CHECK(fs::is_empty(shop.path("out")));
}

TEST_CASE("a multi-layer perceptron travels by its own names", "[exchange]") {
  const TempDir folder;
  const fs::path config = folder.path() / "mlp.yaml";
  std::ofstream(config) << "version: 1\n"
                           "model: {type: mlp, layers: [12, 9], in_features: 3, out_features: 4}\n"
                           "data: {type: synthetic, seq_length: 1}\n"
                           "train: {steps: 1, global_batch_size: 2, micro_batch_size: 2}\n"
                           "optimizer: {type: sgd, lr: 1e-3}\n";
  const Weights weights = {{"head.bias", at::rand({4})},
                           {"head.weight", at::rand({4, 9})},
                           {"layers.0.bias", at::rand({12})},
                           {"layers.0.weight", at::rand({12, 3})},
                           {"layers.1.bias", at::rand({9})},
                           {"layers.1.weight", at::rand({9, 12})}};
  write_weights(folder.path() / "in.safetensors", weights);
  REQUIRE(run_import({.file = (folder.path() / "in.safetensors").string(),
                      .config = config.string(),
                      .sets = {},
                      .output = (folder.path() / "back").string(),
                      .build_id = ""}) == 0);
  REQUIRE(run_export({.checkpoint = (folder.path() / "back").string(),
                      .output = (folder.path() / "out/w.safetensors").string()}) == 0);
  Weights found = read_weights(folder.path() / "out/w.safetensors");
  REQUIRE(found.size() == weights.size());
  for (const auto& [name, values] : weights) {
    CHECK(at::equal(weight(found, name), values));
  }
}

}  // namespace colossal::test
