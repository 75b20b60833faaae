// Are keys, values, their layers and diagnostics told as `config explain`, `config show --origins`,
// schemas/keys.md and
// `--diagnostics json` promise?
#include "config/explain.hpp"

#include "config/flatten.hpp"
#include "config_sandbox.hpp"
#include "support/catch.hpp"
#include "support/text.hpp"

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace colossal::test {
namespace {

std::string must(const std::optional<std::string>& text) {
  REQUIRE(text.has_value());
  return *text;
}

}  // namespace

TEST_CASE("a key is explained by the registry", "[config]") {
  const std::string rate = must(explain_key("optimizer.lr"));
  CHECK(rate ==
        "optimizer.lr\n  type     number > 0\n  default  required\n  resume   may change, with a "
        "note\n"
        "  meaning  peak learning rate\n");
  CHECK(contains(must(explain_key("optimizer.groups[7].match")), "optimizer.groups[0].match\n"));
  const std::string section = must(explain_key("parallel.comm"));
  CHECK(contains(section, "parallel.comm\n  type     mapping"));
  CHECK(contains(section, "parallel.comm.timeout\n"));
  CHECK_FALSE(contains(section, "parallel.data"));
  CHECK(contains(must(explain_key("data.num_samples")), "(type synthetic only)"));
  CHECK(contains(must(explain_key("parallel.gemini.margin_ratio")), "(placement auto only)"));
  CHECK_FALSE(explain_key("optimizer.lrr").has_value());
  CHECK_FALSE(explain_key("optimizer.l").has_value());
  CHECK(nearest_key("optimizer.lrr") == "optimizer.lr");
  CHECK(nearest_key("wieght_decay") == "optimizer.weight_decay");
  CHECK(nearest_key("max_steps") == "train.steps");
}

TEST_CASE("every key of the registry can be explained", "[config]") {
  for (const std::string& path : detail::all_paths()) {
    INFO(path);
    CHECK(must(explain_key(path)).starts_with(path + "\n"));
  }
}

TEST_CASE("every layer that set a key is told, lowest first", "[config]") {
  const ConfigSandbox box;
  box.write("base.yaml", kSynthetic);
  box.write("over.yaml", "optimizer: {lr: 3e-3}\n");
  LoadOptions with = options({"optimizer.lr=4e-3", "vars.rate=5e-3"});
  with.overlays = {(box.path() / "over.yaml").string()};
  const Loaded loaded = box.load(
      "extends: base.yaml\noptimizer:\n  lr: ${vars.rate}\nvars: {rate: 1}\n"
      "run:\n  name: ${vars.rate}\n",
      with);
  REQUIRE(summary(loaded) == "");
  const std::string text = must(explain(loaded, "optimizer.lr"));
  INFO(text);
  CHECK(text.starts_with("optimizer.lr = 0.004\n"));
  const std::size_t base = text.find("base.yaml:5:30");
  const std::size_t own = text.find("run.yaml:3:7");
  const std::size_t over = text.find("over.yaml:1:17");
  const std::size_t set = text.find("--set#1");
  CHECK((base < own && own < over && over < set && set != std::string::npos));
  CHECK(contains(text, "${vars.rate}"));
  CHECK(contains(text, "peak learning rate"));
  CHECK(loaded.layers.at("optimizer.lr").size() == 4);
}

TEST_CASE("a section that was undone counts for its keys", "[config]") {
  const ConfigSandbox box;
  box.write("base.yaml", kSynthetic + "scheduler: {type: cosine, warmup_steps: 5}\n");
  const Loaded undone = box.load("extends: base.yaml\nscheduler: null\n");
  REQUIRE(summary(undone).empty());
  const std::string text = must(explain(undone, "scheduler.warmup_steps"));
  INFO(text);
  CHECK(contains(text, "base.yaml:6:41"));
  CHECK(contains(text, "null (the whole of scheduler)"));
  CHECK(contains(text, "set      <default>"));
  const Loaded replaced = box.load("extends: base.yaml\n", options({"scheduler={type: cosine}"}));
  CHECK(replaced.layers.at("scheduler.warmup_steps").size() == 1);
  CHECK(replaced.layers.at("scheduler.type").size() == 2);
}

TEST_CASE("a key that another placement has dropped has no value", "[config]") {
  const ConfigSandbox box;
  box.write("base.yaml", kSynthetic + "parallel: {gemini: {offload_optim_frac: 0.5}}\n");
  const Loaded loaded =
      box.load("extends: base.yaml\n", options({"parallel.gemini.placement=cpu"}));
  REQUIRE(summary(loaded) == "dropped-by-type 6 21");
  const std::string key = "parallel.gemini.offload_optim_frac";
  CHECK(explain(loaded, key) == explain_key(key));  // it has no value
  // Neither the resolved file nor a comparison has keys of other placements.
  CHECK_FALSE(contains(to_yaml(loaded.config), "offload_optim_frac"));
  CHECK(contains(to_yaml(loaded.config), "    placement: cpu\n    chunk_size: auto\n"));
  const Loaded again = box.load(to_yaml(loaded.config));
  REQUIRE(summary(again).empty());
  CHECK(diff(loaded.config, again.config).empty());
}

TEST_CASE("derived and preset values name their rule", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(
      "version: 1\nmodel: {type: gpt, preset: gpt2-124m}\ndata: {type: synthetic, seq_length: 64}\n"
      "train: {steps: 50, micro_batch_size: 4}\noptimizer: {type: adamw, lr: 1e-3}\n");
  REQUIRE(summary(loaded).empty());
  CHECK(contains(must(explain(loaded, "model.num_layers")), "preset gpt2-124m, "));
  CHECK(contains(must(explain(loaded, "model.ffn_hidden_size")), "derived(4 * hidden_size)"));
  CHECK(contains(must(explain(loaded, "run.seed")), "<default>"));
}

TEST_CASE("resolved YAML with origins is the same configuration", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(kSynthetic, options({"run.seed=3"}));
  const std::string text = to_yaml_with_origins(loaded);
  CHECK(contains(text, "  seed: 3  # --set#1\n"));
  CHECK(contains(text, "  lr: 0.001  # " + (box.path() / "run.yaml").string() + ":5:30\n"));
  CHECK(contains(text, "  every_steps: 10  # <default>\n"));
  CHECK(contains(text, "# derived(num_heads)\n"));
  CHECK(text.starts_with("# Resolved by colossal-train: "));
  const Loaded again = load(box.write("again.yaml", text));
  REQUIRE(summary(again).empty());
  CHECK(to_yaml(again.config) == to_yaml(loaded.config));
}

TEST_CASE("a resolved file resolves to its own bytes, first origins kept", "[config]") {
  const ConfigSandbox box;
  const std::string groups =
      "optimizer: {type: adamw, lr: 1e-3, groups: [{match: '*.bias', lr_scale: 2}, {match: '*', "
      "weight_decay: 0.2}]}\n";
  std::string text = kSynthetic;
  text.erase(text.find("optimizer:"));
  // A name that looks like the end of a value and the beginning of a comment.
  const auto file = box.write("a  # b.yaml", text + groups);
  const auto child =
      box.write("c.yaml", "extends: 'a  # b.yaml'\nrun: {name: n, max_time: null}\n");
  const Loaded first = load(child, options({"run.seed=3", "optimizer.groups[1].lr_scale=4"}, 2));
  REQUIRE(summary(first).empty());
  const std::string resolved = to_yaml_with_origins(first);
  CHECK(contains(resolved, "a # b.yaml:5:30\n"));
  CHECK(contains(resolved, ", <default>\n"));
  CHECK(contains(resolved, ", --set#2, "));
  std::string again = resolved;
  for (const char* name : {"r1.yaml", "r2.yaml"}) {
    const Loaded loaded = load(box.write(name, again), options({}, 2));
    REQUIRE(summary(loaded).empty());
    again = to_yaml_with_origins(loaded);
    CHECK(again == resolved);
    CHECK(config_hash(loaded.config) == config_hash(first.config));
  }
  // What is set over it is new; the rest is as before.
  const Loaded changed = load(box.path() / "r1.yaml", options({"run.seed=4"}, 2));
  const std::string seed = to_yaml_with_origins(changed);
  CHECK(contains(seed, "  seed: 4  # --set#1\n"));
  CHECK(contains(seed, "a # b.yaml:5:30\n"));
  // A value that was changed by hand does not come from where the comment says.
  std::string edited = resolved;
  edited.replace(edited.find("lr: 0.001"), 9, "lr: 0.002");
  const auto by_hand = box.write("edited.yaml", edited);
  const std::string found = to_yaml_with_origins(load(by_hand, options({}, 2)));
  CHECK_FALSE(contains(found, "a # b.yaml"));
  CHECK(contains(found, "lr: 0.002  # " + by_hand.string() + ":"));
}

TEST_CASE("origins in a resolved file tell no secrets", "[config]") {
  ::setenv("COLOSSAL_TEST_TOKEN", "hunter2-x", 1);  // NOLINT(concurrency-mt-unsafe): one thread
  const ConfigSandbox box;
  const Loaded loaded = box.load(kSynthetic + "run: {name: \"r-${env:COLOSSAL_TEST_TOKEN}\"}\n");
  REQUIRE(summary(loaded).empty());
  const std::string text = to_yaml_with_origins(loaded);
  CHECK_FALSE(contains(text, "hunter2"));
  CHECK(contains(text, "name: \"r-${env:COLOSSAL_TEST_TOKEN}\"  # "));
  CHECK(to_yaml_with_origins(load(box.write("again.yaml", text))) == text);
  CHECK_FALSE(contains(place_of(loaded, "run.output_dir").lines, "hunter2"));
  CHECK(
      contains(place_of(loaded, "run.name").lines, "run.name = \"r-${env:COLOSSAL_TEST_TOKEN}\""));
  ::unsetenv("COLOSSAL_TEST_TOKEN");  // NOLINT(concurrency-mt-unsafe): one thread
}

TEST_CASE("the place of a key is where it was written, else its section", "[config]") {
  const ConfigSandbox box;
  const std::string file = (box.path() / "run.yaml").string();
  LoadOptions with = options({"checkpoint.resume=require"});
  with.output_dir = "/tmp/x";
  const Loaded loaded = box.load(kText + "run: {seed: 3}\n", with);
  REQUIRE(summary(loaded).empty());
  const KeyPlace train = place_of(loaded, "data.train");
  CHECK(train.place == file + ":3:27");
  CHECK(contains(train.lines, "     3 | data: {type: text, train: [a.txt]"));
  CHECK(contains(train.lines, "\n       |                           ^\n"));
  CHECK(contains(train.lines, "  key   data.train = ["));
  CHECK(place_of(loaded, "checkpoint.resume").place == "--set#1");
  CHECK(place_of(loaded, "run.output_dir").place == "--output-dir");
  CHECK(place_of(loaded, "run.output_dir").lines ==
        "  key   run.output_dir = /tmp/x            (--output-dir)\n");
  // Nobody wrote these: the section, the file, nothing.
  CHECK(place_of(loaded, "data.eval").place == file + ":3:1");
  CHECK(place_of(loaded, "run.device").place == file + ":6:1");
  CHECK(place_of(loaded, "logging.level").place == file + ":1:1");
  CHECK(place_of(Loaded{}, "logging.level").place == "<default>");
}

TEST_CASE("the key reference is fresh and complete", "[config]") {
  const auto path = std::filesystem::path(COLOSSAL_SOURCE_DIR) / "schemas" / "keys.md";
  std::ostringstream file;
  file << std::ifstream(path).rdbuf();
  const std::string text = key_markdown();
  INFO("run: build/cpu/colossal-train config schema --format markdown > schemas/keys.md");
  CHECK(file.str() == text);
  for (const std::string& key : detail::all_paths()) {
    const bool top = key.find('.') == std::string::npos;
    CHECK(contains(text, top ? "## " + key + "\n" : "| `" + key + "` |"));
  }
}

TEST_CASE("diagnostics as JSON say what the text says", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(kSynthetic + "lr: 5e-5\nscheduler: {min_lr_ratio: .1}\n");
  std::istringstream lines(render(loaded.diagnostics, DiagnosticForm::json));
  std::vector<nlohmann::json> items;
  for (std::string line; std::getline(lines, line);) {
    items.push_back(nlohmann::json::parse(line));
  }
  REQUIRE(items.size() == 2);
  CHECK(items[0]["id"] == "unknown-key");
  CHECK(items[0]["severity"] == "error");
  CHECK(items[0]["file"] == (box.path() / "run.yaml").string());
  CHECK(items[0]["line"] == 6);
  CHECK(items[0]["column"] == 1);
  CHECK(items[0]["path"] == "lr");
  CHECK(contains(items[0]["message"], "optimizer.lr"));
  CHECK(items[0]["fix"] == "use optimizer.lr");
  CHECK(items[0]["related"].empty());
  CHECK(items[1]["id"] == "unused-section");
  CHECK(items[1]["related"][0]["path"] == "scheduler.type");
  CHECK(items[1]["related"][0]["file"] == "<default>");
  CHECK(render({}, DiagnosticForm::json).empty());
}

TEST_CASE("JSON diagnostics are valid whatever bytes a file contains", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load("version: 1\nrun: {name: \"\\xe9\"}\n\xff: 1\n");
  REQUIRE(loaded.has_errors());
  CHECK(nlohmann::json::parse(render(loaded.diagnostics, DiagnosticForm::json))["id"] ==
        "not-utf8");
}

}  // namespace colossal::test
