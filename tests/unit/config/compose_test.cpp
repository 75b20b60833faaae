// Do files, parents and overrides combine as config-and-cli 1.2 and 1.4 say, with their places
// kept?
#include "config_sandbox.hpp"
#include "support/catch.hpp"

namespace colossal::test {

TEST_CASE("own keys beat parents, later parents beat earlier ones", "[config]") {
  const ConfigSandbox box;
  box.write("base.yaml", kSynthetic + "run: {seed: 1, name: base}\nlogging: {every_steps: 3}\n");
  box.write("more.yaml", "run: {seed: 2}\noptimizer: {betas: [0.8, 0.9]}\n");
  const Loaded loaded =
      box.load("extends: [base.yaml, more.yaml]\nrun: {name: own}\noptimizer: {betas: [0, 0.5]}\n");
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.run.seed == 2);
  CHECK(loaded.config.run.name == "own");
  CHECK(loaded.config.logging.every_steps == 3);
  CHECK(loaded.config.optimizer.betas == std::vector<double>{0, 0.5});
  CHECK(loaded.origins.at("run.seed").file == (box.path() / "more.yaml").string());
  CHECK(loaded.origins.at("run.seed").line == 1);
  CHECK(loaded.origins.at("run.name").included_from.empty());
}

TEST_CASE("a fragment starts any mapping, relative to the file that names it", "[config]") {
  const ConfigSandbox box;
  box.write("models/sizes/tiny.yaml", "num_layers: 7\nhidden_size: 32\n");
  box.write("models/small.yaml", "extends: sizes/tiny.yaml\nhidden_size: 16\n");
  const Loaded loaded =
      box.load(kSynthetic, options({"model@" + (box.path() / "m.yaml").string()}));
  CHECK(loaded.diagnostics.at(0).id == "file-not-found");
  const Loaded nested = box.load(
      "version: 1\nmodel: {extends: models/small.yaml, type: gpt, num_heads: 4, vocab_size: 9}\n"
      "data: {type: synthetic, seq_length: 64}\ntrain: {steps: 50, micro_batch_size: 4}\n"
      "optimizer: {type: adamw, lr: 1e-3}\n");
  REQUIRE(summary(nested).empty());
  CHECK(nested.config.model.num_layers == 7);
  CHECK(nested.config.model.hidden_size == 16);
  const auto& from = nested.origins.at("model.num_layers").included_from;
  REQUIRE(from.size() == 2);
  CHECK(from[0] == (box.path() / "models/small.yaml").string() + ":1:10");
  CHECK(from[1] == (box.path() / "run.yaml").string() + ":2:18");
}

TEST_CASE("null undoes what a parent set", "[config]") {
  const ConfigSandbox box;
  box.write("base.yaml", kSynthetic + "logging: {every_steps: 3}\nscheduler: {type: cosine}\n");
  const Loaded loaded = box.load(
      "extends: base.yaml\nlogging: {every_steps: ~}\nscheduler:\ntrain: {steps: null, "
      "samples: 1k}\n");
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.logging.every_steps == 10);
  CHECK(loaded.config.scheduler.type == SchedulerType::constant);
  CHECK_FALSE(loaded.config.train.steps.has_value());
}

TEST_CASE("relative paths start at the file that contains them", "[config]") {
  const ConfigSandbox box;
  box.write("sub/base.yaml", kText);
  const Loaded loaded = box.load("extends: sub/base.yaml\ndata: {eval: [../b.txt, /c.txt]}\n");
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.data.train.at(0).path == (box.path() / "sub/a.txt").string());
  CHECK(loaded.config.data.eval.at(0).path == (box.path().parent_path() / "b.txt").string());
  CHECK(loaded.config.data.eval.at(1).path == "/c.txt");
  const Loaded set = box.load(kText, options({"data.train=[x.txt]"}));
  CHECK(set.config.data.train.at(0).path == (std::filesystem::current_path() / "x.txt").string());
}

TEST_CASE("files may carry weights, and keep them through --set (Lightning 18029)", "[config]") {
  const ConfigSandbox box;
  const std::string file =
      "extends: base.yaml\ndata: {train: [a, {path: b, weight: 2.5}, {path: c}]}\n";
  box.write("base.yaml", kText);
  const std::string folder = box.path().string() + "/";
  const Loaded loaded = box.load(file, options({"data.train[1].weight=3", "data.train[0]=/x"}));
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.data.train ==
        std::vector<DataSource>{{"/x", {}}, {folder + "b", 3.0}, {folder + "c", {}}});
  CHECK(to_yaml(loaded.config)
            .find("train: [/x, {path: " + folder + "b, weight: 3}, " + folder + "c]\n") !=
        std::string::npos);
  for (const char* bad : {"data.train[1].weight=0", "data.train[1].weight=-1"}) {
    CHECK(summary(box.load(file, options({bad}))).starts_with("data-weights"));
  }
  CHECK(summary(box.load(file, options({"data.train[1].weight=.inf"}))).starts_with("bad-real"));
  CHECK(summary(box.load(file, options({"data.train[1].path=null"}))).starts_with("required"));
  CHECK(summary(box.load(file, options({"data.train[3].weight=1"}))).starts_with("index-range"));
  CHECK(summary(box.load(file, options({"data.train[1].wait=1"}))).starts_with("unknown-key"));
}

TEST_CASE("aliases are copies", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(
      "version: 1\nmodel: {type: gpt, num_layers: &n 2, hidden_size: 64, num_heads: *n, "
      "vocab_size: 256}\ndata: {type: synthetic, seq_length: 64}\n"
      "train: {steps: 50, micro_batch_size: 4}\noptimizer: {type: adamw, lr: 1e-3}\n");
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.model.num_heads == 2);
}

TEST_CASE("aliases that multiply are stopped", "[config]") {
  const ConfigSandbox box;
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + last;
    for (int k = 1; k < 10; ++k) {
      text += ", " + last;
    }
    text += "]\n";
  }
  const Loaded loaded = box.load(text);
  REQUIRE(loaded.diagnostics.size() == 1);
  CHECK(loaded.diagnostics[0].id == "yaml-syntax");
}

TEST_CASE("--set beats the file and says so (Lightning 17533)", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(
      kSynthetic, options({"optimizer.lr=1e-4", "optimizer.betas=[0.9,0.95]", "run.name=x"}));
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.optimizer.lr == 1e-4);
  CHECK(loaded.config.optimizer.betas == std::vector<double>{0.9, 0.95});
  CHECK(loaded.origins.at("optimizer.lr").file == "--set");
  CHECK(loaded.origins.at("optimizer.lr").line == 1);
}

TEST_CASE("overlays beat the file in order, --set beats them, flags beat --set", "[config]") {
  const ConfigSandbox box;
  box.write("one.yaml", "run: {seed: 2, name: one}\ntrain: {steps: 7}\noptimizer: {lr: 2e-3}\n");
  box.write("two.yaml", "run: {seed: 3}\noptimizer: {lr: 3e-3}\n");
  LoadOptions with = options({"optimizer.lr=4e-3"});
  with.overlays = {(box.path() / "one.yaml").string(), (box.path() / "two.yaml").string()};
  with.output_dir = "/tmp/flag";
  const Loaded loaded = box.load(kSynthetic + "run: {seed: 1, output_dir: /tmp/file}\n", with);
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.run.seed == 3);
  CHECK(loaded.config.run.name == "one");
  CHECK(loaded.config.train.steps == 7);
  CHECK(loaded.config.optimizer.lr == 4e-3);
  CHECK(loaded.config.run.output_dir == "/tmp/flag");
  CHECK(loaded.origins.at("run.seed").file == (box.path() / "two.yaml").string());
}

TEST_CASE("an overlay may extend other files and is reported at its own place", "[config]") {
  const ConfigSandbox box;
  box.write("parts/base.yaml", "logging: {every_steps: 3}\n");
  box.write("over.yaml", "extends: parts/base.yaml\nlogging: {level: debug}\n");
  box.write("typo.yaml", "logging: {levle: debug}\n");
  LoadOptions with;
  with.overlays = {(box.path() / "over.yaml").string()};
  const Loaded loaded = box.load(kSynthetic, with);
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.logging.every_steps == 3);
  CHECK(loaded.config.logging.level == LogLevel::debug);
  with.overlays = {(box.path() / "typo.yaml").string()};
  const Loaded typo = box.load(kSynthetic, with);
  REQUIRE(summary(typo) == "unknown-key 1 11");
  CHECK(typo.diagnostics[0].origin.included_from.at(0) == "--config-overlay#1");
  with.overlays = {"missing.yaml"};
  CHECK(summary(box.load(kSynthetic, with)) == "file-not-found 1 0");
}

TEST_CASE(
    "flags of another type work in any order, and old keys are dropped with a note "
    "(hydra 2888)",
    "[config]") {
  const ConfigSandbox box;
  const std::string text = kSynthetic + "scheduler: {type: cosine, min_lr_ratio: 0.1}\n";
  const std::vector<std::vector<std::string>> orders = {
      {"data.type=text", "data.train=[a.txt]", "data.tokenizer={type: byte}"},
      {"data.tokenizer={type: byte}", "data.train=[a.txt]", "data.type=text"}};
  std::vector<std::string> results;
  for (const auto& sets : orders) {
    const Loaded loaded = box.load(kSynthetic + "run: {name: x}\n", options(sets));
    INFO(render(loaded.diagnostics));
    REQUIRE_FALSE(loaded.has_errors());
    results.push_back(to_yaml(loaded.config));
  }
  CHECK(results[0] == results[1]);
  const Loaded dropped = box.load(text, options({"scheduler.type=constant"}));
  REQUIRE(summary(dropped) == "dropped-by-type 6 27");
  CHECK(dropped.diagnostics[0].path == "scheduler.min_lr_ratio");
  CHECK(dropped.diagnostics[0].severity == Diagnostic::Severity::note);
  CHECK(summary(box.load(text, options({"scheduler.type=null"}))) == "dropped-by-type 6 27");
  CHECK(
      summary(box.load(text, options({"scheduler.min_lr_ratio=0.2", "scheduler.type=constant"}))) ==
      "unused-section 1 0");
}

TEST_CASE("an overlay drops what its type does not know, but not its own mistakes", "[config]") {
  const ConfigSandbox box;
  const std::string text = kSynthetic + "scheduler: {type: cosine, min_lr_ratio: 0.1}\n";
  LoadOptions with;
  with.overlays = {box.write("over.yaml", "scheduler: {type: constant}\n").string()};
  CHECK(summary(box.load(text, with)) == "dropped-by-type 6 27");
  with.overlays = {
      box.write("own.yaml", "scheduler: {type: constant, min_lr_ratio: 0.3}\n").string()};
  CHECK(summary(box.load(text, with)) == "unused-section 1 29");
}

TEST_CASE("--set KEY@FILE reads a value, a mapping or a list from a file", "[config]") {
  const ConfigSandbox box;
  const std::string lr = box.write("lr.yaml", "3e-4\n").string();
  const std::string betas = box.write("betas.yaml", "[0.8, 0.99]\n").string();
  const std::string model =
      box.write("model.yaml",
                "type: gpt\nnum_layers: 1\nhidden_size: 8\nnum_heads: 2\nvocab_size: 9\n")
          .string();
  const Loaded loaded = box.load(
      kSynthetic, options({"optimizer.lr@" + lr, "optimizer.betas@" + betas, "model@" + model}));
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.optimizer.lr == 3e-4);
  CHECK(loaded.config.optimizer.betas == std::vector<double>{0.8, 0.99});
  CHECK(loaded.config.model.hidden_size == 8);
  CHECK(loaded.origins.at("model.hidden_size").file == model);
}

TEST_CASE("--set edits list items and never appends (Lightning 18029)", "[config]") {
  const ConfigSandbox box;
  const std::string text = kSynthetic + "scheduler: {type: cosine}\n";
  const std::string two =
      "version: 1\nextends: base.yaml\noptimizer: {betas: [0.5, 0.6], groups: "
      "[{match: a}]}\n";
  box.write("base.yaml", text);
  const Loaded edited =
      box.load(two, options({"optimizer.betas[1]=0.7", "optimizer.groups[0].lr_scale=3"}));
  REQUIRE(summary(edited).empty());
  CHECK(edited.config.optimizer.betas == std::vector<double>{0.5, 0.7});
  CHECK(edited.config.optimizer.groups.at(0).lr_scale == 3);
  CHECK(summary(box.load(two, options({"optimizer.betas[2]=0.7"}))) == "index-range 1 0");
  CHECK(summary(box.load(text, options({"optimizer.betas[0]=0.7"}))) == "index-range 1 0");
}

TEST_CASE("a wrong path in --set is an unknown key and creates nothing", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(kSynthetic, options({"run.seed=3", "a.b.c=1"}));
  REQUIRE(summary(loaded) == "unknown-key 2 0");
  CHECK(loaded.diagnostics[0].path == "a");
  const Loaded typo = box.load(kSynthetic, options({"optimizer.wieght_decay=0.1"}));
  REQUIRE(summary(typo) == "unknown-key 1 0");
  CHECK(typo.diagnostics[0].message.find("optimizer.weight_decay") != std::string::npos);
}

TEST_CASE("malformed overrides are explained", "[config]") {
  const ConfigSandbox box;
  for (const char* text : {"",
                           "lr",
                           "=3",
                           "a..b=1",
                           ".a=1",
                           "a[x]=1",
                           "a[=1",
                           "[0]=1",
                           "a[0]b=1",
                           "a b=1",
                           "a.=1",
                           "a[]=1",
                           "a[99999999]=1"}) {
    INFO(text);
    CHECK(summary(box.load(kSynthetic, options({text}))) == "override-syntax 1 0");
  }
  CHECK(summary(box.load(kSynthetic, options({"train.steps.x=1"}))) == "override-path 1 0");
  CHECK(summary(box.load(kSynthetic, options({"model.extends=a.yaml"}))) == "override-path 1 0");
  CHECK(summary(box.load(kSynthetic, options({"run.name='x"}))) == "unclosed-quote 1 0");
  CHECK(summary(box.load(kSynthetic, options({"run.seed=010"}))) == "bad-int 1 0");
  CHECK(summary(box.load(kSynthetic, options({"run={a: 1, a: 2}"}))) == "duplicate-key 1 0");
}

TEST_CASE("the last --set of a key wins, with a note", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(kSynthetic, options({"run.seed=3", "run.name=a", "run.seed=4"}));
  REQUIRE(summary(loaded) == "override-shadowed 1 0");
  CHECK(loaded.diagnostics[0].severity == Diagnostic::Severity::note);
  CHECK(loaded.config.run.seed == 4);
}

TEST_CASE("--set removes a section, or reads it from a file", "[config]") {
  const ConfigSandbox box;
  const Loaded removed =
      box.load(kSynthetic + "scheduler: {warmup_steps: 3}\n", options({"scheduler=null"}));
  CHECK_FALSE(removed.config.scheduler.warmup_steps.has_value());
  const auto file = box.write("s.yaml", "type: cosine\nmin_lr_ratio: 0.5\n");
  const Loaded read = box.load(kSynthetic, options({"scheduler@" + file.string()}));
  REQUIRE(summary(read).empty());
  CHECK(read.config.scheduler.min_lr_ratio == 0.5);
}

TEST_CASE("a changed type drops inherited keys, in any order of flags (hydra 2888)", "[config]") {
  const ConfigSandbox box;
  const std::vector<std::string> flags = {
      "data.type=synthetic", "data.num_samples=7", "model.vocab_size=256"};
  for (const auto& order :
       {std::vector{flags[0], flags[1], flags[2]}, std::vector{flags[1], flags[2], flags[0]}}) {
    const Loaded loaded = box.load(kText, options(order));
    REQUIRE_FALSE(loaded.has_errors());
    CHECK(summary(loaded) == "dropped-by-type 3 20; dropped-by-type 3 36");
    CHECK(loaded.config.data.num_samples == 7);
    CHECK(loaded.config.data.train.empty());
  }
  CHECK(summary(box.load(kText, options({"data.type=synthetic", "data.train=[a]"}))) ==
        "dropped-by-type 3 36; unused-section 2 0");
}

TEST_CASE("dedicated flags beat --set and are never parsed as YAML", "[config]") {
  const ConfigSandbox box;
  LoadOptions flags = options({"run.output_dir=/a", "checkpoint.resume=never"});
  flags.output_dir = "/tmp/[b]: 'x";
  flags.resume = "require";
  const Loaded loaded = box.load(kSynthetic, flags);
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.run.output_dir == "/tmp/[b]: 'x");
  CHECK(loaded.config.checkpoint.resume == "require");
  CHECK(loaded.origins.at("run.output_dir").file == "--output-dir");
  CHECK(summary(box.load(kSynthetic + "checkpoint: 3\n", flags)) == "override-path 2 0");
  flags.overrides.clear();
  CHECK(summary(box.load(kSynthetic + "checkpoint: 3\n", flags)) == "wrong-type 6 13");
}

TEST_CASE("a missing or unreadable main file is one error without a line", "[config]") {
  const ConfigSandbox box;
  CHECK(summary(load(box.path() / "none.yaml")) == "file-not-found 0 0");
  CHECK(summary(load(box.path())) == "file-not-readable 0 0");
  CHECK(summary(box.load("")) == "empty-config 1 1");
  CHECK(summary(box.load("~\n")) == "empty-config 1 1");
  CHECK(summary(box.load("just text\n")) == "wrong-type 1 1");
}

TEST_CASE("a missing file is looked for under the nearest name, by whoever named it", "[config]") {
  const ConfigSandbox box;
  box.write("base.yaml", kSynthetic);
  const auto fix = [](const Loaded& loaded) { return loaded.diagnostics.at(0).fix; };
  const std::string meant = "did you mean " + (box.path() / "base.yaml").string() + "?";
  CHECK(fix(load(box.path() / "bse.yaml")) == meant);
  CHECK(fix(load(box.path() / "base")) == meant);
  CHECK(fix(box.load("extends: basee.yaml\n")) == meant);
  const Loaded set = box.load(kSynthetic, options({"model@" + (box.path() / "bas.yaml").string()}));
  CHECK(fix(set) == meant);
  CHECK(fix(load(box.path() / "nothing-like-it.yaml")) ==
        "check the name; relative names start at the working directory");
  CHECK(fix(box.load(kSynthetic, options({"model@/none/x.yaml"}))) ==
        "check the name; relative names start at the working directory");
  CHECK(fix(box.load("extends: something-else.yaml\n")) ==
        "check the name; relative names start at the file that contains them");
}

TEST_CASE("a folder in the place of a file says which files it has", "[config]") {
  const ConfigSandbox box;
  std::filesystem::create_directories(box.path() / "empty");
  const Loaded empty = load(box.path() / "empty");
  CHECK(empty.diagnostics.at(0).message == (box.path() / "empty").string() + " is a folder");
  CHECK(empty.diagnostics.at(0).fix == "name a YAML file");
  box.write("empty/a.yaml", kSynthetic);
  CHECK(load(box.path() / "empty").diagnostics.at(0).fix ==
        "did you mean " + (box.path() / "empty" / "*.yaml").string() + "?");
}

TEST_CASE("what a command sets by itself is not counted as --set", "[config]") {
  const ConfigSandbox box;
  LoadOptions with;
  with.overrides = {{"run.seed=1", "<eval>"}, {"run.seed=2"}, {"run.name=a b"}};
  const Loaded loaded = box.load(kSynthetic, with);
  CHECK(summary(loaded) == "bad-name 2 0");  // and no note that seed is set again
  with.overrides.pop_back();
  const Loaded good = box.load(kSynthetic, with);
  CHECK(summary(good).empty());
  CHECK(good.config.run.seed == 2);
  CHECK(good.origins.at("run.seed").file == "--set");
  CHECK(good.origins.at("run.seed").line == 1);
}

TEST_CASE("errors of several files come together, the main file first", "[config]") {
  const ConfigSandbox box;
  box.write("a.yaml", "x: 'y\n");
  box.write("b.yaml", "z: {\n");
  CHECK(summary(box.load("extends: [b.yaml, a.yaml, c.yaml]\n")) ==
        "file-not-found 1 27; unclosed-quote 1 4; unclosed-bracket 1 4");
}

TEST_CASE("a text that lies in no file loads like a file, under the name it is given", "[config]") {
  const Loaded stored = load_text(kSynthetic + "run: {name: stored}\n", "<stored>");
  CHECK(summary(stored).empty());
  CHECK(stored.config.run.name == "stored");
  CHECK(stored.origins.at("run.name").file == "<stored>");
  CHECK(stored.origins.at("run.name").line == 6);

  const Loaded overridden =
      load_text(kSynthetic, "<stored>", options({"train.steps=7", "optimizer.lr=0"}));
  CHECK(summary(overridden) == "out-of-range 2 0");

  const Loaded wrong = load_text("- a\n- b\n", "<stored>");
  CHECK(summary(wrong) == "wrong-type 1 1");
  CHECK(render(wrong.diagnostics).starts_with("<stored>:1:1: error: "));
  CHECK(load_text("", "<stored>").diagnostics.at(0).id == "empty-config");
}

}  // namespace colossal::test
