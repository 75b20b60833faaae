// Do weights leave as they are, in the form that others read, whole or not at all?
#include "infer/detail/passage.hpp"
#include "unit/infer/exchange_helpers.hpp"

#include <ATen/ops/all.h>
#include <ATen/ops/any.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace colossal::test {
namespace {

using Json = nlohmann::json;

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
      CHECK(read_file(again.output) == read_file(file));
      CHECK(read_file(shop.path("again/config.json")) == read_file(shop.path("out/config.json")));
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
    const Json json = Json::parse(read_file(shop.path("out/config.json")));
    CHECK(json.at("torch_dtype") == (word == "bf16" ? "bfloat16" : "float16"));
    shop.import(shop.path("out/model.safetensors"), "back");
    REQUIRE(run_export({.checkpoint = shop.path("back").string(),
                        .output = shop.path("again/model.safetensors").string(),
                        .dtype = word}) == 0);
    CHECK(read_file(shop.path("again/model.safetensors")) ==
          read_file(shop.path("out/model.safetensors")));
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

TEST_CASE("an export that cannot be named leaves neither weights nor description", "[exchange]") {
  for (const std::string in_the_way : {"config.json", "model.safetensors"}) {
    INFO(in_the_way);
    const TempDir folder;
    const fs::path weights = folder.path() / "model.safetensors";
    const fs::path description = folder.path() / "config.json";
    {
      SafetensorsWriter writer(weights, {{.name = "w", .dtype = at::kFloat, .shape = {2}}});
      writer.write(at::zeros({2}));
      OutputFile file(description);
      file.finish();
      fs::create_directory(folder.path() / in_the_way);
      require_error(ErrorKind::environment, "output-write", [&] {
        detail::commit_both(file, description, writer);
      });
    }
    fs::remove(folder.path() / in_the_way);
    CHECK(fs::is_empty(folder.path()));
  }
}

}  // namespace colossal::test
