// Does a configuration that starts from others mean the same as one file, and keep its comments?
#include "config/standalone.hpp"

#include "config_sandbox.hpp"
#include "support/catch.hpp"

namespace colossal::test {
namespace {

const std::string kBase =
    "# The base.\n"
    "version: 1\n"
    "model: {type: gpt, num_layers: 2, hidden_size: 64, num_heads: 4, vocab_size: 256}  # small\n"
    "data: {type: synthetic, seq_length: 64}\n"
    "train:   # two keys\n"
    "  steps: 2k           # in thousands\n"
    "  micro_batch_size: 4\n"
    "optimizer: {type: adamw, lr: 1e-3, betas: [0.9, 0.95]}\n";

/// What `run.yaml` and the text that it becomes mean, if they extend these files.
void require_same_meaning(const Texts& texts) {
  const ConfigSandbox box;
  for (const auto& [name, text] : texts) {
    box.write(name, text);
  }
  const std::string whole = standalone("run.yaml", texts);
  INFO(whole);
  CHECK(whole.find("extends:") == std::string::npos);
  const Loaded parts = load(box.path() / "run.yaml");  // before it is written anew
  const Loaded one = load(box.write("run.yaml", whole));
  REQUIRE_FALSE(parts.has_errors());
  REQUIRE(summary(one).empty());
  CHECK(to_yaml(one.config) == to_yaml(parts.config));
}

}  // namespace

TEST_CASE("a text that extends nothing stays as it is, to the byte", "[config]") {
  const Texts texts = {{"run.yaml", kBase + "\n# the end"}};
  CHECK(standalone("run.yaml", texts) == texts.at("run.yaml"));
}

TEST_CASE("own keys, inherited keys and the comments beside them become one text", "[config]") {
  const Texts texts = {{"base.yaml", kBase},
                       {"run.yaml",
                        "# Mine.\n"
                        "# Twice the steps.\n"
                        "extends: base.yaml\n"
                        "run: {output_dir: 'a#b', seed: 3}   # a path with a # in it\n"
                        "train:\n"
                        "  steps: 4k   # more\n"}};
  CHECK(standalone("run.yaml", texts) ==
        "# Mine.\n"
        "# Twice the steps.\n"
        "# What it extends is written out here.\n"
        "version: 1\n"
        "model:\n"
        "  type: gpt\n"
        "  num_layers: 2\n"
        "  hidden_size: 64\n"
        "  num_heads: 4\n"
        "  vocab_size: 256  # small\n"
        "data:\n"
        "  type: synthetic\n"
        "  seq_length: 64\n"
        "train:\n"
        "  steps: 4k  # more\n"
        "  micro_batch_size: 4\n"
        "optimizer:\n"
        "  type: adamw\n"
        "  lr: 1e-3\n"
        "  betas: [0.9, 0.95]\n"
        "run:\n"
        "  output_dir: \"a#b\"\n"
        "  seed: 3  # a path with a # in it\n");
  require_same_meaning(texts);
}

TEST_CASE("a section's own comment stays where no key of it shares the line", "[config]") {
  const std::string text =
      standalone("run.yaml", {{"base.yaml", kBase}, {"run.yaml", "extends: base.yaml\n"}});
  CHECK(text.find("\ntrain:  # two keys\n") != std::string::npos);
}

TEST_CASE("keys that a changed type drops are left out", "[config]") {
  const Texts texts = {
      {"base.yaml", kBase},
      {"run.yaml", "extends: base.yaml\noptimizer: {type: sgd, momentum: 0.5}\nrun: {name: x}\n"}};
  CHECK(standalone("run.yaml", texts).find("betas") == std::string::npos);
  require_same_meaning(texts);
}

TEST_CASE("fragments, chains, undone keys, lists, quotes and uses mean the same", "[config]") {
  require_same_meaning(
      {{"base.yaml", kBase},
       {"parts/small.yaml", "hidden_size: 32\nnum_heads: 2\ndropout: 0.1  # some\n"},
       {"middle.yaml",
        "extends: base.yaml\nvars: {n: 3}\nmodel: {extends: parts/small.yaml, num_heads: 8}\n"},
       {"run.yaml",
        "extends: [middle.yaml]\n"
        "run: {name: \"x-${vars.n}\", seed: \"${vars.n}\"}\n"
        "train: {steps: null, samples: 8k}\n"
        "optimizer:\n"
        "  no_decay: ['*.bias', \"*norm*\"]\n"
        "  groups:\n"
        "    - {match: '*embed*', lr_scale: 0.5}   # slower\n"
        "    - match: \"blocks.[01].*\"\n"
        "      weight_decay: 0\n"}});
}

TEST_CASE("what cannot be composed comes back, so that loading it tells why", "[config]") {
  for (const char* own : {"extends: missing.yaml\n", "extends: run.yaml\n", "a: [\n"}) {
    const Texts texts = {{"run.yaml", own}};
    CHECK(standalone("run.yaml", texts) == own);
  }
}

}  // namespace colossal::test
