// Do weights of others come in as they are, and is everything refused that would compute
// something else?
#include "unit/infer/exchange_helpers.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace colossal::test {
namespace {

using Json = nlohmann::json;

}  // namespace

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

TEST_CASE("a head of another type than the embeddings is compared by its numbers", "[exchange]") {
  const Workshop shop;
  Weights weights = read_weights(shop.exported("fp32", true));
  weight(weights, "lm_head.weight") = weight(weights, "lm_head.weight").to(at::kDouble);
  write_weights(shop.path("wide.safetensors"), weights);
  shop.import(shop.path("wide.safetensors"), "wide");
  weight(weights, "lm_head.weight").view(-1)[5] += 1e-12;  // nothing in fp32
  write_weights(shop.path("other.safetensors"), weights);
  CHECK(mentions(
      shop.refused(ErrorKind::checkpoint, "weights-mismatch", shop.path("other.safetensors")),
      "lm_head.weight differs from the embeddings"));
}

TEST_CASE("what the masters cannot hold is not made infinite", "[exchange]") {
  const Workshop shop;
  Weights weights = read_weights(shop.exported("fp64"));
  weight(weights, kQkv).view(-1)[5] = 1e39;
  write_weights(shop.path("large.safetensors"), weights);
  CHECK(mentions(
      shop.refused(ErrorKind::numerics, "weights-overflow", shop.path("large.safetensors")),
      "'" + kQkv + "' has values that F32 cannot hold"));
  shop.import(shop.path("large.safetensors"), "wide", {"train.precision=fp64"});
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
