// Do the configuration cases of public complaints end well? One test a row of user-cases C1; rows
// 17 and 19 need parallel modes that are not built yet, 22 is corpus_test.cpp, 23 an end-to-end
// test.
#include "config_sandbox.hpp"
#include "support/catch.hpp"
#include "support/text.hpp"

#include <algorithm>

namespace colossal::test {
namespace {

const Diagnostic& only(const Loaded& loaded, const std::string& id) {
  INFO(render(loaded.diagnostics));
  REQUIRE(loaded.diagnostics.size() == 1);
  CHECK(loaded.diagnostics[0].id == id);
  return loaded.diagnostics[0];
}

/// kSynthetic with its `train` section replaced.
std::string with_train(const std::string& train) {
  std::string text = kSynthetic;
  const std::size_t at = text.find("train: {");
  return text.replace(at, text.find('\n', at) - at, "train: {" + train + "}");
}

Diagnostic sole_finding(const std::string& base,
                        std::vector<std::string> sets,
                        std::int64_t world = 0) {
  const ConfigSandbox box;
  const Loaded loaded = box.load(base, options(std::move(sets), world));
  INFO(render(loaded.diagnostics));
  REQUIRE(loaded.diagnostics.size() == 1);
  return loaded.diagnostics[0];
}

}  // namespace

TEST_CASE("C1 row 1: a misplaced key is an error with its place and the right key", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(kSynthetic + "lr: 5e-5\n");
  const Diagnostic& error = only(loaded, "unknown-key");
  CHECK(error.origin.line == 6);
  CHECK(error.origin.col == 1);
  CHECK(error.fix == "use optimizer.lr");
}

TEST_CASE("C1 row 2: a typo is caught in the file, in an overlay and in --set", "[config]") {
  const ConfigSandbox box;
  std::string text = kSynthetic;
  text.insert(text.rfind('}'), ", wieght_decay: 0.1");
  CHECK(only(box.load(text), "unknown-key").fix == "use optimizer.weight_decay");
  CHECK(only(box.load(kSynthetic, options({"optimizer.wieght_decay=0.1"})), "unknown-key").fix ==
        "use optimizer.weight_decay");
  LoadOptions with;
  with.overlays = {box.write("over.yaml", "optimizer: {wieght_decay: 0.1}\n").string()};
  CHECK(only(box.load(kSynthetic, with), "unknown-key").fix == "use optimizer.weight_decay");
}

TEST_CASE("C1 row 4: the resolved file loads, and resolves to the same bytes", "[config]") {
  const ConfigSandbox box;
  const std::string resolved = to_yaml(box.load(kText, options({}, 2)).config);
  const Loaded again = box.load(resolved, options({}, 2));
  CHECK(summary(again).empty());
  CHECK(to_yaml(again.config) == resolved);
}

TEST_CASE("C1 row 5: a micro-batch alone is a legal batch", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(with_train("steps: 5, micro_batch_size: 4"), options({}, 3));
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.train.gradient_accumulation == 1);
  CHECK(loaded.config.train.global_batch_size == 12);
}

TEST_CASE("C1 row 7: 1e3 steps are 1000 wherever they are written", "[config]") {
  const ConfigSandbox box;
  LoadOptions overlay;
  overlay.overlays = {box.write("over.yaml", "train: {steps: 1e3}\n").string()};
  const std::string variable =
      "vars: {n: 1e3}\n" + with_train("steps: \"${vars.n}\", micro_batch_size: 4");
  for (const Loaded& loaded : {box.load(with_train("steps: 1e3, micro_batch_size: 4")),
                               box.load(kSynthetic, options({"train.steps=1e3"})),
                               box.load(kSynthetic, overlay),
                               box.load(variable)}) {
    CHECK(loaded.config.train.steps == 1000);
  }
}

TEST_CASE("C1 row 8: a wrong batch says where the world size came from and three ways out",
          "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(
      with_train("steps: 5, global_batch_size: 8, micro_batch_size: 2, gradient_accumulation: 1"),
      options({}, 1));
  const Diagnostic& error = only(loaded, "batch-mismatch");
  CHECK(contains(error.message, "8 is not data 1 x micro_batch_size 2 x gradient_accumulation 1"));
  CHECK(contains(error.why, "no launcher environment found"));
  CHECK(std::count(error.fix.begin(), error.fix.end(), '|') >= 2);
}

TEST_CASE("C1 row 10: accumulation that contradicts the batch names both places", "[config]") {
  const ConfigSandbox box;
  box.write("base.yaml", with_train("steps: 5, gradient_accumulation: 4, micro_batch_size: 2"));
  const Loaded loaded =
      box.load("extends: base.yaml\ntrain: {global_batch_size: 12}\n", options({}, 1));
  const Diagnostic& error = only(loaded, "batch-mismatch");
  CHECK(error.origin.file.ends_with("run.yaml"));
  const auto accumulation =
      std::find_if(error.related.begin(), error.related.end(), [](const Related& related) {
        return related.path == "train.gradient_accumulation";
      });
  REQUIRE(accumulation != error.related.end());
  CHECK(accumulation->origin.file.ends_with("base.yaml"));
}

TEST_CASE("C1 row 11: --set edits an item, and a path that is no key creates nothing", "[config]") {
  const ConfigSandbox box;
  const std::string text = kText + "run: {name: x}\n";
  const Loaded edited = box.load(text, options({"data.train[0]=b.txt"}));
  REQUIRE(summary(edited).empty());
  CHECK(edited.config.data.train.size() == 1);
  CHECK(only(box.load(text, options({"a.b.c=1"})), "unknown-key").origin.file == "--set");
}

TEST_CASE("C1 row 13: the command line beats the file and is named as the origin", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(kSynthetic, options({"optimizer.lr=1e-4"}));
  CHECK(loaded.config.optimizer.lr == 1e-4);
  CHECK(loaded.origins.at("optimizer.lr").file == "--set");
  CHECK(loaded.origins.at("optimizer.lr").line == 1);
}

TEST_CASE("C1 row 14: a key of another variant can be set with it, in any order", "[config]") {
  const ConfigSandbox box;
  const std::string text = kSynthetic + "scheduler: {type: constant}\n";
  const std::vector<std::string> sets = {"scheduler.type=cosine", "scheduler.min_lr_ratio=0.5"};
  const Loaded forth = box.load(text, options({sets[0], sets[1]}));
  const Loaded back = box.load(text, options({sets[1], sets[0]}));
  REQUIRE(summary(forth).empty());
  REQUIRE(summary(back).empty());
  CHECK(to_yaml(forth.config) == to_yaml(back.config));
  const Loaded dropped = box.load(to_yaml(forth.config), options({"scheduler.type=constant"}));
  REQUIRE_FALSE(dropped.has_errors());
  for (const Diagnostic& item : dropped.diagnostics) {
    CHECK(item.id == "dropped-by-type");
    CHECK(item.severity == Diagnostic::Severity::note);
  }
  CHECK(dropped.diagnostics.size() >= 1);
}

TEST_CASE("C1 row 14: the optimizer and a key of it are set on a file of another one", "[config]") {
  const ConfigSandbox box;
  std::string text = kSynthetic;
  text.insert(text.rfind('}'), ", betas: [0.9, 0.95]");
  const std::vector<std::string> sets = {"optimizer.type=lamb", "optimizer.trust_clip=5"};
  const Loaded forth = box.load(text, options({sets[0], sets[1]}));
  const Loaded back = box.load(text, options({sets[1], sets[0]}));
  for (const Loaded& loaded : {forth, back}) {
    CHECK(summary(loaded).empty());  // lamb has betas, too
    CHECK(loaded.config.optimizer.type == OptimizerType::lamb);
    CHECK(loaded.config.optimizer.trust_clip == 5);
    CHECK(loaded.config.optimizer.betas == std::vector<double>{0.9, 0.95});
  }
  CHECK(to_yaml(forth.config) == to_yaml(back.config));
  const std::vector<std::string> others = {"optimizer.type=lars", "optimizer.trust_clip=5"};
  for (const Loaded& loaded : {box.load(text, options({others[0], others[1]})),
                               box.load(text, options({others[1], others[0]}))}) {
    const Diagnostic& note = only(loaded, "dropped-by-type");
    CHECK(note.severity == Diagnostic::Severity::note);
    CHECK(note.path == "optimizer.betas");
    CHECK(loaded.config.optimizer.trust_clip == 5);
    CHECK_FALSE(contains(to_yaml(loaded.config), "betas"));
  }
}

TEST_CASE("C1 row 16: heads that do not divide are refused with those that do", "[config]") {
  const ConfigSandbox box;
  std::string text = kSynthetic;
  text.replace(text.find("num_heads: 4"), 12, "num_heads: 25");
  const Loaded loaded = box.load(text);
  CHECK(contains(only(loaded, "heads-divisible").fix, "16 | 32"));
}

TEST_CASE("C1 row 20: a micro-batch over the global batch is said in plain words", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded =
      box.load(with_train("steps: 5, global_batch_size: 4, micro_batch_size: 8"), options({}, 1));
  CHECK(contains(only(loaded, "batch-mismatch").message,
                 "micro_batch_size 8 on 1 replica is more than global_batch_size 4"));
}

TEST_CASE("numbers of things are said in the right number", "[config]") {
  const auto message = [](std::vector<std::string> sets, std::int64_t world) {
    return sole_finding(kSynthetic, std::move(sets), world).message;
  };
  CHECK(message({"train.steps=null", "train.tokens=1"}, 1) ==
        "1 token is rounded up to 1 step of 256");
  CHECK(message({"train.steps=null", "train.samples=2"}, 1) ==
        "2 samples are rounded up to 1 step of 4");
  CHECK(message({"logging.ranks=[3]"}, 1) ==
        "logging.ranks names rank 3, but the run has 1 process");
  CHECK(message({"logging.ranks=[3]"}, 2) ==
        "logging.ranks names rank 3, but the run has 2 processes");
  CHECK(message({"train.steps=1", "scheduler={type: cosine, warmup_steps: 3}"}, 1) ==
        "warmup_steps 3 exceeds the 1 step of the run");
}

TEST_CASE("a batch that does not fit and a mesh that does not are told together", "[config]") {
  const std::vector<std::string> sets = {"parallel.data=4",
                                         "train={steps: 4, global_batch_size: 2}"};
  const ConfigSandbox box;
  const Loaded loaded = box.load(kSynthetic, options(sets, 2));
  REQUIRE(loaded.diagnostics.size() == 2);
  CHECK(loaded.diagnostics[0].id == "world-size");
  CHECK(loaded.diagnostics[1].id == "batch-mismatch");
  // --nproc 2, which the start had, is no way out.
  CHECK(loaded.diagnostics[1].fix.find("nproc") == std::string::npos);
  CHECK(loaded.diagnostics[1].fix.find("global_batch_size: 4") != std::string::npos);
  CHECK(sole_finding(kSynthetic, sets, 4).id == "batch-mismatch");
}

TEST_CASE("what is wrong with a value's form is shown as it was written", "[config]") {
  const Diagnostic quoted = sole_finding(kSynthetic, {"train.steps=\"4\""});
  CHECK(quoted.id == "quoted-number");
  CHECK(quoted.message == "train.steps: \"4\" is text, because of its quotes");
  CHECK(quoted.value == "\"4\"");
  CHECK(quoted.fix == "remove the quotes");
  for (const std::string block : {"|\n    1\n", "|-\n    1\n", ">\n    1\n"}) {
    const Diagnostic lines = sole_finding(kSynthetic + "eval:\n  every_steps: " + block, {});
    CHECK(lines.id == "quoted-number");
    CHECK(lines.message == "eval.every_steps: '1' is text, as a block after | or >");
    CHECK(lines.fix == "write the value behind its key, on the same line");
  }
  const Diagnostic truth = sole_finding(kSynthetic + "checkpoint:\n  at_end: |\n    true\n", {});
  CHECK(truth.id == "bad-bool");
  CHECK(truth.message == "checkpoint.at_end: 'true' is text, as a block after | or >");
  const Diagnostic twice = sole_finding(kSynthetic, {"eval={at_start: true, at_start: false}"});
  CHECK(twice.id == "duplicate-key");
  CHECK(twice.fix == "remove one of the two");
  const Diagnostic unknown = sole_finding(kText, {"data.train=[{path: a.txt, wieght: 1}]"});
  CHECK(unknown.id == "unknown-key");
  CHECK(unknown.message.ends_with("did you mean `weight`?"));
  CHECK(sole_finding(kText, {"data.train=[{path: a.txt, zzz: 1}]"}).message ==
        "`zzz` is not a key of `data.train[0]`");
}

}  // namespace colossal::test
