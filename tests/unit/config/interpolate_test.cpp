// Do `${...}` in values become what config-and-cli 1.3 says, with their sources named and secrets
// hidden?
#include "config/explain.hpp"
#include "config/uses.hpp"
#include "config_sandbox.hpp"
#include "support/catch.hpp"

#include <cstdlib>
#include <nlohmann/json.hpp>

namespace colossal::test {
namespace {

/// An environment variable while it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  Variable(Variable&&) = delete;
  Variable& operator=(Variable&&) = delete;

 private:
  const char* name_;
};

LoadOptions at_time() {
  LoadOptions with;
  with.run_time = "20261128-041500";
  return with;
}

}  // namespace

TEST_CASE("a whole use takes the type of its target", "[config]") {
  const ConfigSandbox box;
  const Variable rate("COLOSSAL_TEST_RATE", "2e-3");
  const Loaded loaded = box.load(
      "version: 1\n"
      "vars: {heads: 4, shuffle: false, kind: cosine, long: 1k, wait: 3m, beta: '0.9'}\n"
      "model: {type: gpt, num_layers: 2, hidden_size: 64, num_heads: \"${vars.heads}\", "
      "vocab_size: 256}\n"
      "data:\n  type: synthetic\n  seq_length: 64\n  shuffle: ${vars.shuffle}\n"
      "train:\n  steps: ${vars.long}\n  micro_batch_size: ${model.num_heads}\n"
      "optimizer:\n  type: adamw\n  lr: ${env:COLOSSAL_TEST_RATE}\n"
      "  betas: [\"${vars.beta}\", 0.95]\n"
      "scheduler:\n  type: ${vars.kind}\n"
      "parallel:\n  comm:\n    timeout: ${vars.wait}\n");
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.model.num_heads == 4);
  CHECK_FALSE(loaded.config.data.shuffle);
  CHECK(loaded.config.train.steps == 1000);
  CHECK(loaded.config.train.micro_batch_size == 4);
  CHECK(loaded.config.optimizer.lr == 2e-3);
  CHECK(loaded.config.optimizer.betas.front() == 0.9);
  CHECK(loaded.config.scheduler.type == SchedulerType::cosine);
  CHECK(loaded.config.parallel.comm.timeout_seconds == 180);
}

TEST_CASE("embedded uses are joined as text, and the key's type reads the result", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(
      kSynthetic +
          "vars: {n: 3, who: ann}\n"
          "run:\n  name: ${vars.who}-s${run.seed}-${run.time}\n  output_dir: out/${run.name}\n"
          "checkpoint:\n  every_steps: ${vars.n}k\n",
      at_time());
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.run.name == "ann-s1234-20261128-041500");
  CHECK(loaded.config.run.output_dir == (box.path() / "out/ann-s1234-20261128-041500").string());
  CHECK(loaded.config.checkpoint.every_steps == 3000);
  CHECK(loaded.uses_run_time);
  CHECK_FALSE(box.load(kSynthetic).uses_run_time);
}

TEST_CASE("a key that is not written gives its default, the name the file's", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded =
      box.load(kSynthetic +
               "run:\n  output_dir: /tmp/${run.name}/${logging.every_steps}/${scheduler.type}\n");
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.run.output_dir == "/tmp/run/10/constant");
}

TEST_CASE("uses follow overrides and parents, whatever the order", "[config]") {
  const ConfigSandbox box;
  box.write("base.yaml",
            kSynthetic + "vars: {steps: 7, other: 1}\nrun: {name: \"x${vars.other}\"}\n");
  const Loaded loaded =
      box.load("extends: base.yaml\ntrain: {steps: \"${vars.steps}\"}\nvars: {steps: 8}\n",
               options({"vars.other=${vars.steps}"}));
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.train.steps == 8);
  CHECK(loaded.config.run.name == "x8");
}

TEST_CASE("the environment has defaults, and empty counts as not set for them", "[config]") {
  const ConfigSandbox box;
  const std::string text = kSynthetic + "run:\n  name: ${env:COLOSSAL_TEST_NAME:-plain name? no}\n";
  CHECK(summary(box.load(text)) == "bad-name 7 9");
  const std::string named = kSynthetic + "run:\n  name: ${env:COLOSSAL_TEST_NAME:-fallback}\n";
  CHECK(box.load(named).config.run.name == "fallback");
  const Variable empty("COLOSSAL_TEST_NAME", "");
  CHECK(box.load(named + "# empty\n").config.run.name == "fallback");
  CHECK(summary(box.load(kSynthetic + "run:\n  name: ${env:COLOSSAL_TEST_NAME}\n")) ==
        "bad-string 7 9");
  const Loaded null =
      box.load(kSynthetic + "eval:\n  every_steps: ${env:COLOSSAL_TEST_EVAL:-null}\n");
  REQUIRE(summary(null).empty());
  CHECK_FALSE(null.config.eval.every_steps.has_value());
}

TEST_CASE("a doubled dollar is a plain one, and comes back from the resolved file", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(kSynthetic +
                                 "run:\n  output_dir: /tmp/$${HOME}/$$${x}/a$b/$\n"
                                 "  name: \"plain\"\n");
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.run.output_dir == "/tmp/${HOME}/$${x}/a$b/$");
  const std::string resolved = to_yaml(loaded.config);
  const Loaded again = box.load(resolved);
  REQUIRE(summary(again).empty());
  CHECK(again.config.run.output_dir == loaded.config.run.output_dir);
  CHECK(to_yaml(again.config) == resolved);
}

TEST_CASE("errors point at the use and name the source", "[config]") {
  const ConfigSandbox box;
  const Loaded bad = box.load("vars:\n  rate: fast\n" + kSynthetic +
                              "scheduler:\n  type: cosine\n  min_lr_ratio: ${vars.rate}\n");
  REQUIRE(summary(bad) == "bad-real 10 17");
  REQUIRE(bad.diagnostics[0].related.size() == 1);
  CHECK(bad.diagnostics[0].related[0].path == "vars.rate");
  CHECK(bad.diagnostics[0].related[0].value == "fast");
  CHECK(bad.diagnostics[0].related[0].origin.line == 2);
  CHECK(render(bad.diagnostics).find("with  vars.rate = fast") != std::string::npos);
  const Variable heads("COLOSSAL_TEST_HEADS", "5");
  std::string text = kSynthetic;
  text.replace(text.find("num_heads: 4"), 12, "num_heads: \"${env:COLOSSAL_TEST_HEADS}\"");
  const Loaded rule = box.load(text);
  REQUIRE(summary(rule) == "heads-divisible 2 63");
  CHECK(rule.diagnostics[0].related.back().path == "env:COLOSSAL_TEST_HEADS");
  CHECK(rule.diagnostics[0].related.back().origin.file == "environment");
}

TEST_CASE("what cannot be inserted is explained where it is used", "[config]") {
  const ConfigSandbox box;
  const auto report = [&](const std::string& name) {
    return box.load(kSynthetic + "vars: {a: 1}\nrun:\n  seed: ${vars.a}\n  name: " + name + "\n");
  };
  const auto id = [&](const std::string& name) { return summary(report(name)); };
  CHECK(id("${optimizer.lrr}") == "interp-unknown 9 9");
  CHECK(report("${optimizer.lrr}").diagnostics[0].fix == "use ${optimizer.lr}");
  CHECK(id("${vars.b}") == "interp-unknown 9 9");
  CHECK(report("${vars.b}").diagnostics[0].fix == "use ${vars.a}");
  CHECK(id("${zzzzzzzzzzzz}") == "interp-unknown 9 9");
  CHECK(id("${model}") == "interp-unknown 9 9");
  CHECK(id("${train.epochs}") == "interp-unknown 9 9");
  CHECK(id("${train.gradient_accumulation}") == "interp-unknown 9 9");
  CHECK(id("${data.train[3]}") == "interp-unknown 9 9");
  CHECK(id("${env:COLOSSAL_TEST_UNSET}") == "interp-env 9 9");
  CHECK(id("${run.name}") == "interp-cycle 9 9");
  for (const char* bad :
       {"${", "x${run.seed", "${}", "${a b}", "${env:}", "${env:1A}", "${vars.${x}}"}) {
    INFO(bad);
    CHECK(id(bad) == "interp-syntax 9 9");
  }
}

TEST_CASE("circles are reported once, with the way round", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(kSynthetic +
                                 "vars:\n  a: ${vars.b}\n  b: x${vars.c}\n  c: ${vars.a}\n"
                                 "run:\n  name: ${vars.a}\n  output_dir: ${vars.b}\n");
  REQUIRE(summary(loaded) == "interp-cycle 9 6");
  CHECK(loaded.diagnostics[0].message.find("vars.a -> vars.b -> vars.c -> vars.a") !=
        std::string::npos);
}

TEST_CASE("keys and extends take no uses, flow braces want quotes", "[config]") {
  const ConfigSandbox box;
  CHECK(summary(box.load(kSynthetic + "run:\n  ${vars.a}: 1\n")) == "interp-syntax 7 3");
  CHECK(summary(box.load("extends: ${vars.a}.yaml\n" + kSynthetic)) == "interp-syntax 1 10");
  const Loaded flow = box.load(kSynthetic + "run: {name: ${vars.a}, seed: 1}\n");
  REQUIRE(summary(flow) == "interp-quote 6 13");
  CHECK(flow.diagnostics[0].fix == "write \"${vars.a}\"");
  CHECK(summary(box.load(kSynthetic + "run: {name: a-${vars.a}}\n")) == "interp-quote 6 15");
  CHECK(summary(box.load(kSynthetic + "eval: [${vars.a}\n")) ==
        "unclosed-bracket 6 7; interp-quote 6 8");
}

TEST_CASE("vars hold single values with plain names, and unused ones are said", "[config]") {
  const ConfigSandbox box;
  CHECK(summary(box.load(kSynthetic + "vars: {a: 1}\n")) == "unused-var 6 8");
  CHECK(summary(box.load(kSynthetic + "vars: {a: [1]}\n")) == "unused-var 6 8; wrong-type 6 11");
  CHECK(summary(box.load(kSynthetic + "vars: [a]\n")) == "wrong-type 6 7");
  CHECK(summary(box.load(kSynthetic + "vars: {a.b: 1}\n")).starts_with("bad-key 6 8"));
  CHECK(summary(box.load(kSynthetic + "vars:\n")).empty());
  const Loaded typo = box.load(kSynthetic + "vars: {rate: 1}\nrun:\n  name: ${vars.rat}\n");
  CHECK(summary(typo) == "unused-var 6 8; interp-unknown 8 9");
}

TEST_CASE("secrets are written as their expression, and resolve again", "[config]") {
  const ConfigSandbox box;
  const Variable secret("COLOSSAL_TEST_API_KEY", "hunter2-x");
  const std::string text =
      kText + "vars: {who: \"me-${env:COLOSSAL_TEST_API_KEY}\"}\n" +
      "run:\n  name: n-${vars.who}\n  seed: ${env:COLOSSAL_TEST_TOKEN_SEED:-77}\n"
      "eval: {at_end: true}\n";
  std::string with_data = text;
  with_data.replace(with_data.find("[a.txt]"), 7, "[a.txt, \"${env:COLOSSAL_TEST_API_KEY}/b\"]");
  const Loaded loaded = box.load(with_data, options({"data.eval=[x.txt]"}));
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.run.name == "n-me-hunter2-x");
  CHECK(loaded.config.run.seed == 77);
  CHECK(loaded.config.data.train.at(1).path == (box.path() / "hunter2-x/b").string());
  for (const std::string& yaml : {to_yaml(loaded.config), to_minimal_yaml(loaded.config)}) {
    INFO(yaml);
    CHECK(yaml.find("hunter2") == std::string::npos);
    CHECK(yaml.find("name: \"n-me-${env:COLOSSAL_TEST_API_KEY}\"") != std::string::npos);
    CHECK(yaml.find("seed: \"${env:COLOSSAL_TEST_TOKEN_SEED:-77}\"") != std::string::npos);
    const Loaded again = box.load(yaml);
    REQUIRE(summary(again).empty());
    CHECK(diff(loaded.config, again.config).empty());
    CHECK(again.config.run.output_dir == loaded.config.run.output_dir);
    CHECK(again.config.data.train == loaded.config.data.train);
  }
  CHECK(redact(loaded.config.secrets, "in /x/hunter2-x/y") ==
        "in /x/${env:COLOSSAL_TEST_API_KEY}/y");
}

TEST_CASE("a secret in the path of a weighted file stays one", "[config]") {
  const ConfigSandbox box;
  const Variable secret("COLOSSAL_TEST_API_KEY", "hunter2-x");
  std::string text = kText;
  text.replace(
      text.find("[a.txt]"), 7, "[a.txt, {path: \"${env:COLOSSAL_TEST_API_KEY}/b\", weight: 2}]");
  const Loaded loaded = box.load(text);
  REQUIRE(summary(loaded).empty());
  const std::string yaml = to_yaml(loaded.config);
  INFO(yaml);
  CHECK(yaml.find("hunter2") == std::string::npos);
  CHECK(yaml.find("/${env:COLOSSAL_TEST_API_KEY}/b\", weight: 2}]") != std::string::npos);
  CHECK(box.load(yaml).config.data.train == loaded.config.data.train);
}

TEST_CASE("a mark anywhere in its name makes a variable secret", "[config]") {
  for (const char* name : {"KEY",
                           "api_key",
                           "MY_API_KEYS",
                           "HF_TOKEN",
                           "HFTOKEN",
                           "Db_Password_2",
                           "dbpassword1",
                           "SECRET",
                           "X_APIKEY",
                           "TOKENIZER_PATH",
                           "MONKEY"}) {
    INFO(name);
    CHECK(detail::is_secret(name));
  }
  for (const char* name : {"HOME", "KE_Y", "TOKE", "PASS_WORD", "SECRE", "", "_"}) {
    INFO(name);
    CHECK_FALSE(detail::is_secret(name));
  }
}

TEST_CASE("HFTOKEN in the run's name was written out", "[config]") {
  const ConfigSandbox box;
  const Variable secret("COLOSSALHFTOKEN", "hunter2-x");
  const Loaded loaded = box.load(kText + "run:\n  name: x-${env:COLOSSALHFTOKEN}\n");
  REQUIRE(summary(loaded).empty());
  CHECK(loaded.config.run.name == "x-hunter2-x");
  for (const std::string& yaml : {to_yaml(loaded.config), to_minimal_yaml(loaded.config)}) {
    INFO(yaml);
    CHECK(yaml.find("hunter2") == std::string::npos);
    CHECK(yaml.find("name: \"x-${env:COLOSSALHFTOKEN}\"") != std::string::npos);
  }
}

TEST_CASE("a secret with characters that JSON escapes is found in JSON", "[config]") {
  Secrets secrets;
  secrets.values["a\"b\\c\nd"] = "${env:API_KEY}";
  const nlohmann::ordered_json json = {{"x", {"in /a\"b\\c\nd/y", 1, nullptr}}, {"n", 2.5}};
  const std::string text = redact_json(secrets, json.dump(), -1);
  CHECK(text == R"({"x":["in /${env:API_KEY}/y",1,null],"n":2.5})");
  CHECK(redact_json({}, json.dump(), 2) == json.dump());
}

TEST_CASE("diagnostics never show a secret", "[config]") {
  const ConfigSandbox box;
  const Variable secret("COLOSSAL_TEST_PASSWORD", "hunter2-x");
  const Loaded loaded =
      box.load(kSynthetic +
               "vars:\n  p: ${env:COLOSSAL_TEST_PASSWORD}\nscheduler:\n  type: ${vars.p}\n"
               "logging:\n  every_steps: ${env:COLOSSAL_TEST_PASSWORD}\n");
  CHECK(summary(loaded) == "bad-enum 9 9; bad-int 11 16");
  const std::string text = render(loaded.diagnostics);
  INFO(text);
  CHECK(text.find("hunter2") == std::string::npos);
  CHECK(text.find("'${env:COLOSSAL_TEST_PASSWORD}' is not a whole number") != std::string::npos);
}

}  // namespace colossal::test
