// May one value stand for a mapping, in every reader and writer?
#include "config_sandbox.hpp"
#include "schema_check.hpp"
#include "support/catch.hpp"

#include <string>

namespace colossal::test {
namespace {

Config loaded(const std::vector<std::string>& overrides, const std::string& text = kSynthetic) {
  const ConfigSandbox box;
  const Loaded result = box.load(text, options(overrides));
  INFO(render(result.diagnostics));
  REQUIRE_FALSE(result.has_errors());
  return result.config;
}

/// The configuration of `text` after writing and reading it again, both ways.
void check_written(const Config& config) {
  const ConfigSandbox box;
  for (const std::string& text : {to_yaml(config), to_minimal_yaml(config)}) {
    INFO(text);
    const Loaded again = box.load(text, options({}));
    REQUIRE_FALSE(again.has_errors());
    CHECK(to_yaml(again.config) == to_yaml(config));
  }
}

}  // namespace

TEST_CASE("a number is a constant loss scale", "[config]") {
  const Config config = loaded({"train.precision=fp16", "train.loss_scale=1024"});
  REQUIRE(config.train.loss_scale.has_value());
  CHECK(config.train.loss_scale->init == 1024);
  CHECK(config.train.loss_scale->growth == 1);
  CHECK(config.train.loss_scale->backoff == 1);
  CHECK(config.train.loss_scale->hysteresis == 2);
  check_written(config);
}

TEST_CASE("a mapping of the loss scale stays dynamic", "[config]") {
  const Config config = loaded({"train.precision=fp16", "train.loss_scale={init: 64}"});
  CHECK(config.train.loss_scale->init == 64);
  CHECK(config.train.loss_scale->growth == 2);
  CHECK(config.train.loss_scale->backoff == 0.5);
  check_written(config);
  CHECK_FALSE(loaded({"train.precision=fp16"}).train.loss_scale.has_value());
}

TEST_CASE("a word is a mode of recomputation, a mapping means full", "[config]") {
  const auto mode_of = [](const std::string& value) {
    const Config config = loaded({"train.activation_checkpoint=" + value});
    check_written(config);
    return config.train.activation_checkpoint.mode;
  };
  CHECK(loaded({}).train.activation_checkpoint.mode == RecomputeMode::none);
  CHECK(mode_of("none") == RecomputeMode::none);
  CHECK(mode_of("full") == RecomputeMode::full);
  CHECK(mode_of("selective") == RecomputeMode::selective);
  CHECK(mode_of("{every: 2}") == RecomputeMode::full);
  CHECK(mode_of("{mode: null, every: 2}") == RecomputeMode::full);
  CHECK(mode_of("{mode: selective}") == RecomputeMode::selective);
  CHECK(mode_of("{mode: none}") == RecomputeMode::none);
  CHECK(mode_of("null") == RecomputeMode::none);
  CHECK(mode_of("{offload: cpu}") == RecomputeMode::full);
  CHECK(
      loaded({"train.activation_checkpoint={offload: cpu}"}).train.activation_checkpoint.offload ==
      InputOffload::cpu);
}

TEST_CASE("all blocks are written as all, and auto still means it", "[config]") {
  SchemaCheck schema;
  for (const std::string value : {"all", "auto", "null"}) {
    INFO(value);
    const Config config = loaded({"train.activation_checkpoint={blocks: " + value + "}"});
    CHECK_FALSE(config.train.activation_checkpoint.blocks.has_value());
    CHECK(to_yaml(config).find("blocks: all") != std::string::npos);
    check_written(config);
    CHECK(schema.accepts("extends: a.yaml\ntrain: {activation_checkpoint: {blocks: " + value +
                         "}}\n"));
  }
  CHECK_FALSE(schema.accepts("extends: a.yaml\ntrain: {activation_checkpoint: {every: all}}\n"));
  CHECK(
      loaded({"train.activation_checkpoint={blocks: all}", "train.activation_checkpoint.blocks=1"})
          .train.activation_checkpoint.blocks == 1);
}

TEST_CASE("an unused loss scale is blamed on a key that was written", "[config]") {
  const auto blamed = [](const std::vector<std::string>& overrides) {
    const ConfigSandbox box;
    const Loaded result = box.load(kSynthetic, options(overrides));
    return result.diagnostics.empty() ? std::string() : result.diagnostics.front().path;
  };
  CHECK(blamed({"train.loss_scale.min=4"}) == "train.loss_scale.min");
  CHECK(blamed({"train.loss_scale={min: 4, init: 8}"}) == "train.loss_scale.init");
  CHECK(blamed({"train.loss_scale=8"}) == "train.loss_scale.init");
  CHECK(blamed({"train.loss_scale={}"}) == "train.loss_scale.init");
}

TEST_CASE("a value of a lower layer is replaced by a mapping and the other way", "[config]") {
  const std::string scalar = kSynthetic + "---\n";
  const ConfigSandbox box;
  std::string base = kSynthetic;
  base.replace(base.find("steps: 50"), 9, "steps: 50, activation_checkpoint: selective");
  box.write("base.yaml", base);
  const Loaded child =
      box.load("extends: base.yaml\ntrain: {activation_checkpoint: {blocks: 1}}\n", options({}));
  INFO(render(child.diagnostics));
  CHECK_FALSE(child.has_errors());
  const Loaded word =
      box.load("extends: base.yaml\ntrain: {activation_checkpoint: full}\n", options({}));
  CHECK(word.config.train.activation_checkpoint.mode == RecomputeMode::full);
}

TEST_CASE("the schema takes both forms and refuses others", "[config]") {
  SchemaCheck schema;
  const auto accepts = [&](const std::string& train) {
    return schema.accepts("extends: base.yaml\ntrain: {" + train + "}\n");
  };
  CHECK(accepts("activation_checkpoint: full"));
  CHECK(accepts("activation_checkpoint: null"));
  CHECK(accepts("activation_checkpoint: '${vars.x}'"));
  CHECK(accepts("activation_checkpoint: {mode: full, every: 3}"));
  CHECK_FALSE(accepts("activation_checkpoint: half"));
  CHECK_FALSE(accepts("activation_checkpoint: {mod: full}"));
  CHECK_FALSE(accepts("activation_checkpoint: [full]"));
  CHECK(accepts("loss_scale: 128"));
  CHECK(accepts("loss_scale: {init: 128}"));
  CHECK_FALSE(accepts("loss_scale: 0"));
  CHECK_FALSE(accepts("loss_scale: big"));
}

TEST_CASE("precision and recomputation fit together or are refused", "[config]") {
  const auto id_of = [](const std::vector<std::string>& overrides) {
    const ConfigSandbox box;
    const Loaded result = box.load(kSynthetic, options(overrides));
    return result.diagnostics.empty() ? std::string() : result.diagnostics.front().id;
  };
  CHECK(id_of({"train.precision=bf16"}).empty());
  CHECK(id_of({"train.precision=fp16"}) == "fp16-slow");
  CHECK(id_of({"train.precision=fp16", "train.max_skipped_steps=3"}) == "fp16-slow");
  CHECK(id_of({"train.loss_scale=2"}) == "unused-section");
  CHECK(id_of({"train.activation_checkpoint={every: 2, blocks: 1}"}).empty());
  CHECK(id_of({"train.activation_checkpoint={mode: selective, recompute: [attention, mlp]}"})
            .empty());
  CHECK(id_of({"train.activation_checkpoint={mode: selective, recompute: [attention]}",
               "model.attention_dropout=0.1"}) == "recompute-attention");
}

}  // namespace colossal::test
