// Are open values found as the key tables say?
#include "config/presets.hpp"
#include "config/schedule.hpp"
#include "config_sandbox.hpp"
#include "core/error.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <tuple>

namespace colossal::test {

TEST_CASE("sizes follow from others", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(kText, options({}, 2));
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.model.num_kv_heads == 4);
  CHECK(loaded.config.model.ffn_hidden_size == 256);
  CHECK(loaded.config.model.vocab_size == 256);
  CHECK(loaded.config.model.max_seq_length == 64);
  CHECK(loaded.config.parallel.data == 2);
  CHECK(loaded.config.run.name == "run");
  CHECK(loaded.config.run.output_dir ==
        (std::filesystem::current_path() / "runs" / "run").string());
  CHECK(loaded.config.eval.at_end == false);
  CHECK(loaded.config.eval.micro_batch_size == 4);
  CHECK(loaded.origins.at("model.ffn_hidden_size").file == "derived(4 * hidden_size)");
  CHECK(loaded.origins.at("parallel.data").file == "derived(world size)");
}

TEST_CASE("evaluation data switch the final evaluation on", "[config]") {
  const ConfigSandbox box;
  CHECK(box.load(kText, options({"data.eval=[b]"})).config.eval.at_end == true);
  CHECK(box.load(kText, options({"data.eval=[b]", "eval.at_end=false"})).config.eval.at_end ==
        false);
}

TEST_CASE("a preset fills what is not given", "[config]") {
  const ConfigSandbox box;
  const std::string text =
      "version: 1\nmodel: {type: gpt, preset: gpt2-1.5b, num_heads: 20}\n"
      "data: {type: synthetic, seq_length: 64}\ntrain: {steps: 5, micro_batch_size: 1}\n"
      "optimizer: {type: adamw, lr: 1e-3}\n";
  const Loaded loaded = box.load(text);
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.model.num_layers == 48);
  CHECK(loaded.config.model.hidden_size == 1600);
  CHECK(loaded.config.model.num_heads == 20);
  CHECK(loaded.config.model.max_seq_length == 1024);
  CHECK(loaded.config.model.vocab_size == 50257);
  CHECK(padded_vocab(loaded.config.model) == 50304);
  CHECK(loaded.origins.at("model.num_layers").via == "preset gpt2-1.5b");
  CHECK(loaded.origins.at("model.num_layers").line == 2);
}

TEST_CASE("an explicit auto vocabulary beats the preset", "[config]") {
  const ConfigSandbox box;
  const auto size = [&](std::vector<std::string> sets) {
    return box.load(kText, options(std::move(sets))).config.model.vocab_size;
  };
  CHECK(size({"model.preset=gpt2-124m"}) == 50257);
  CHECK(size({"model.preset=gpt2-124m", "model.vocab_size=auto"}) == 256);
}

TEST_CASE("token files have the vocabulary of the tokenizer that made them", "[config]") {
  const ConfigSandbox box;
  const auto load = [&](const std::string& tokenizer, const std::string& size) {
    return box.load(kTokens, options({"data.tokenizer=" + tokenizer, "model.vocab_size=" + size}));
  };
  const Loaded bytes = load("{type: byte}", "auto");
  CHECK(bytes.config.model.vocab_size == 256);
  CHECK(bytes.origins.at("model.vocab_size").file == "derived(data.tokenizer)");
  const Loaded files = load("{type: bpe, path: none}", "auto");
  CHECK_FALSE(files.has_errors());
  CHECK(files.config.model.vocab_size == 0);  // known with the data
  CHECK(load("{type: bpe, path: none}", "9").config.model.vocab_size == 9);
  CHECK(load("{type: byte}", "255").diagnostics.at(0).id == "vocab-too-small");
  CHECK(load("{type: bpe}", "9").diagnostics.at(0).path == "data.tokenizer.path");
  const Loaded unknown = load("null", "auto");
  REQUIRE(unknown.has_errors());
  CHECK(unknown.diagnostics.at(0).id == "required");
  CHECK(unknown.diagnostics.at(0).fix.find("`tokenizer: {type: bpe, path: FILE}`") !=
        std::string::npos);
}

// V d + T d + L (12 d^2 + 13 d) + 2 d, the last column of the table.
TEST_CASE("presets have the parameter counts of the model table", "[config]") {
  const std::vector<std::pair<std::string, std::int64_t>> counts = {{"gpt2-124m", 124'439'808},
                                                                    {"gpt2-355m", 354'823'168},
                                                                    {"gpt2-774m", 774'030'080},
                                                                    {"gpt2-1.5b", 1'557'611'200},
                                                                    {"gpt3-125m", 125'226'240},
                                                                    {"gpt3-350m", 355'871'744},
                                                                    {"gpt3-760m", 760'300'032},
                                                                    {"gpt3-1.3b", 1'315'723'264},
                                                                    {"gpt3-2.7b", 2'651'553'280},
                                                                    {"gpt3-6.7b", 6'658'404'352},
                                                                    {"gpt3-13b", 12'853'386'240},
                                                                    {"gpt3-175b", 174'604'259'328}};
  REQUIRE(counts.size() == detail::preset_names().size());
  for (const auto& [name, count] : counts) {
    const detail::Preset* p = detail::find_preset(name);
    REQUIRE(p != nullptr);
    const std::int64_t d = p->hidden_size;
    CHECK(p->vocab_size * d + p->max_seq_length * d + p->num_layers * (12 * d * d + 13 * d) +
              2 * d ==
          count);
    CHECK(d % p->num_heads == 0);
  }
}

TEST_CASE("no_decay counts as given only if it differs", "[config]") {
  const ConfigSandbox box;
  CHECK_FALSE(box.load(kSynthetic).config.optimizer.no_decay_given);
  CHECK(box.load(kSynthetic, options({"optimizer.no_decay=[x]"})).config.optimizer.no_decay_given);
}

/// The optimizer of a small run with these keys.
OptimizerConfig optimizer_of(const ConfigSandbox& box, const std::string& keys) {
  const Loaded loaded = box.load(with_optimizer(keys));
  INFO(render(loaded.diagnostics));
  REQUIRE_FALSE(loaded.has_errors());
  return loaded.config.optimizer;
}

TEST_CASE("eps, trust_clip and no_adapt follow from the type and no_decay", "[config]") {
  const ConfigSandbox box;
  CHECK(optimizer_of(box, "type: adamw").eps == 1e-8);
  CHECK(optimizer_of(box, "type: adamw, eps: 0").eps == 0);
  CHECK_FALSE(optimizer_of(box, "type: adamw").trust_clip);
  CHECK(optimizer_of(box, "type: adamw").no_adapt.empty());
  CHECK(optimizer_of(box, "type: lars").eps == 1e-9);
  CHECK_FALSE(optimizer_of(box, "type: lars").trust_clip);
  const OptimizerConfig lamb = optimizer_of(box, "type: lamb, no_decay: [x*]");
  CHECK(lamb.eps == 1e-6);
  CHECK(lamb.trust_clip == 10);
  CHECK(lamb.no_adapt == std::vector<std::string>{"x*"});
  CHECK(optimizer_of(box, "type: lamb, no_adapt: []").no_adapt.empty());
  CHECK_FALSE(optimizer_of(box, "type: lamb, trust_clip: null").trust_clip);
  CHECK(optimizer_of(box, "type: lars, trust_clip: 0.5").trust_clip == 0.5);
}

TEST_CASE("betas follow from the type, and stay what was written", "[config]") {
  const ConfigSandbox box;
  CHECK(optimizer_of(box, "type: adamw").betas == std::vector<double>{0.9, 0.999});
  CHECK(optimizer_of(box, "type: lamb").betas == std::vector<double>{0.9, 0.999});
  CHECK(optimizer_of(box, "type: lion").betas == std::vector<double>{0.9, 0.99});
  CHECK(optimizer_of(box, "type: lion, betas: [0.9, 0.999]").betas ==
        std::vector<double>{0.9, 0.999});
  const OptimizerConfig adafactor = optimizer_of(box, "type: adafactor");
  CHECK(adafactor.scale_parameter);
  CHECK_FALSE(adafactor.relative_step);
}

TEST_CASE("true and false of bias_correction are two of lamb's kinds", "[config]") {
  const ConfigSandbox box;
  const auto kind = [&](const std::string& keys) {
    return optimizer_of(box, keys).bias_correction;
  };
  CHECK(kind("type: lamb") == BiasCorrection::moments);
  CHECK(kind("type: lamb, bias_correction: TRUE") == BiasCorrection::moments);
  CHECK(kind("type: lamb, bias_correction: false") == BiasCorrection::none);
  CHECK(kind("type: lamb, bias_correction: lr") == BiasCorrection::lr);
  CHECK(kind("type: adam") == BiasCorrection::on);
  CHECK(kind("type: adam, bias_correction: False") == BiasCorrection::off);
}

TEST_CASE("the peak rate is scaled with the batch", "[config]") {
  Config config;
  config.optimizer.lr = 0.5;
  config.train.global_batch_size = 64;
  CHECK(effective_lr(config) == 0.5);
  config.optimizer.base_batch_size = 16;
  config.optimizer.lr_scaling = LrScaling::linear;
  CHECK(effective_lr(config) == 2);
  config.optimizer.lr_scaling = LrScaling::sqrt;
  CHECK(effective_lr(config) == 1);
  config.train.global_batch_size = 0;  // not known yet
  CHECK(effective_lr(config) == 0.5);
}

TEST_CASE("budgets become steps, rounded up", "[config]") {
  Config config;
  config.data.seq_length = 10;
  config.train.global_batch_size = 8;
  config.train.tokens = 800;
  CHECK(total_steps(config, 0) == 10);
  config.train.tokens = 801;
  CHECK(total_steps(config, 0) == 11);
  config.train.tokens.reset();
  config.train.samples = 17;
  CHECK(total_steps(config, 0) == 3);
  config.train.samples.reset();
  config.train.epochs = 1.5;
  CHECK(total_steps(config, 32) == 6);
  CHECK(total_steps(config, 33) == 7);
  CHECK_THROWS_AS(total_steps(config, 0), Error);
  config.train.steps = 7;
  CHECK(total_steps(config, 0) == 7);
}

TEST_CASE("a budget needs a batch size", "[config]") {
  Config config;
  config.train.samples = 10;
  try {
    (void)total_steps(config, 0);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.id() == "unknown-batch");
    CHECK(error.kind() == ErrorKind::internal);
  }
}

TEST_CASE("a part of an epoch is not rounded up by the arithmetic of doubles", "[config]") {
  Config config;
  config.train.global_batch_size = 4;
  for (const auto& [epochs, samples, steps] : {std::tuple{1.1, 200, 55},
                                               std::tuple{1.1, 400, 110},
                                               std::tuple{0.55, 400, 55},
                                               std::tuple{0.551, 400, 56},
                                               std::tuple{3.0, 400, 300}}) {
    config.train.epochs = epochs;
    INFO(epochs << " epochs of " << samples << " samples");
    CHECK(total_steps(config, samples) == steps);
  }
}

TEST_CASE("epochs cannot be counted before the data are known", "[config]") {
  Config config;
  config.train.epochs = 2;
  config.train.global_batch_size = 4;
  CHECK(total_steps(config, 8) == 4);
  try {
    (void)total_steps(config, 0);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.id() == "unknown-epoch");
    CHECK(error.kind() == ErrorKind::internal);
  }
}

TEST_CASE("one scalar means the same for every reader (determined 2688)", "[config]") {
  const ConfigSandbox box;
  CHECK(box.load(kSynthetic, options({"train.steps=1e3"})).config.train.steps == 1000);
  CHECK(box.load("version: 1\nextends: b.yaml\ntrain: {steps: 1e3}\n", {}).has_errors());
  box.write("b.yaml", kSynthetic);
  CHECK(box.load("version: 1\nextends: b.yaml\ntrain: {steps: 1e3}\n").config.train.steps == 1000);
}

}  // namespace colossal::test
