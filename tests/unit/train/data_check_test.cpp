// Are the rules that wait for the data found all at once, each at its key?
#include "core/error.hpp"
#include "support/catch.hpp"
#include "train/data.hpp"
#include "train/plan_report.hpp"

#include <fmt/format.h>

#include <string>

namespace colossal::test {
namespace {

/// 60 synthetic samples; `sections` follow model and data.
Loaded loaded_with(const std::string& sections, std::int64_t world_size = 1) {
  const std::string text =
      "version: 1\n"
      "model: {type: gpt, num_layers: 1, hidden_size: 16, num_heads: 2, vocab_size: 64}\n"
      "data: {type: synthetic, seq_length: 8, num_samples: 60}\n" +
      sections;
  LoadOptions options;
  if (world_size > 0) {
    options.world_size = world_size;
  }
  Loaded loaded = load_text(text, "run.yaml", options);
  INFO(render(loaded.diagnostics));
  REQUIRE_FALSE(loaded.has_errors());
  return loaded;
}

/// "id line:col value" of everything found, and the exit code.
std::string found(const Loaded& loaded) {
  const OpenedData data = open_data(loaded.config);
  const DataFindings findings = check_with_data(loaded, *data.train);
  std::string text;
  for (const Diagnostic& item : findings.diagnostics) {
    text += fmt::format("{} {}:{} {}; ", item.id, item.origin.line, item.origin.col, item.value);
  }
  return text + std::to_string(findings.exit_code);
}

const std::string kTrain = "train: {steps: 2, global_batch_size: 8}\n";

}  // namespace

TEST_CASE("a run that fits its data has no findings", "[data_check]") {
  CHECK(found(loaded_with(kTrain + "optimizer: {type: adamw, lr: 1e-3}\n")) == "0");
  CHECK(found(loaded_with(kTrain + "optimizer:\n"
                                   "  type: adamw\n"
                                   "  lr: 1e-3\n"
                                   "  no_decay: ['*.bias', '*tokens*']\n"
                                   "  groups: [{match: 'blocks.*', lr_scale: 0.5}]\n")) == "0");
}

TEST_CASE("every pattern without effect is found at its key", "[data_check]") {
  CHECK(found(loaded_with(kTrain + "optimizer:\n"
                                   "  type: adamw\n"
                                   "  lr: 1e-3\n"
                                   "  no_decay: ['*.bias', '*layernorm*']\n"
                                   "  groups:\n"
                                   "    - {match: 'blocks.*', lr_scale: 0.5}\n"
                                   "    - {match: 'layers.*', lr_scale: 0.5}\n")) ==
        "pattern-unused 8:13 *layernorm*; pattern-unused 11:15 layers.*; 3");
}

TEST_CASE("a pattern of no_adapt without effect is found, unless it is no_decay's",
          "[data_check]") {
  CHECK(found(loaded_with(kTrain + "optimizer: {type: lamb, lr: 1e-3}\n")) == "0");
  CHECK(
      found(loaded_with(kTrain + "optimizer: {type: lars, lr: 1e-3, no_adapt: ['*.bias', q]}\n")) ==
      "pattern-unused 5:45 q; 3");
}

TEST_CASE("a tied parameter is no target of a pattern", "[data_check]") {
  const std::string head = kTrain + "optimizer: {type: adamw, lr: 1e-3, no_decay: ['head.*']}\n";
  CHECK(found(loaded_with(head)) == "pattern-unused 5:46 head.*; 3");
}

TEST_CASE("a length in epochs is checked when the data have said it", "[data_check]") {
  const std::string epochs = "train: {epochs: 2, global_batch_size: 8}\n";  // 2 * 7 steps
  const std::string optimizer = "optimizer: {type: adamw, lr: 1e-3}\n";
  const auto warmup = [&](int steps) {
    return epochs + optimizer +
           fmt::format("scheduler: {{type: cosine, warmup_steps: {}}}\n", steps);
  };
  CHECK(found(loaded_with(warmup(14))) == "0");
  CHECK(found(loaded_with(warmup(15))) == "warmup-too-long 6:41 15; 3");
  // A warning alone is no failure.
  CHECK(found(loaded_with(epochs + optimizer + "eval: {every_steps: 15}\n")) ==
        "never-runs 6:21 15; 0");
  CHECK(found(loaded_with(epochs + optimizer + "checkpoint: {at_end: false, every_steps: 15}\n")) ==
        "checkpoint-none 6:22 false; 0");
}

TEST_CASE("what load() has said already is not said again", "[data_check]") {
  const Loaded loaded = loaded_with(
      "train: {epochs: 2, global_batch_size: 8}\n"
      "optimizer: {type: adamw, lr: 2}\n");
  REQUIRE(loaded.diagnostics.size() == 1);
  CHECK(loaded.diagnostics.front().id == "lr-too-large");
  CHECK(found(loaded) == "0");
}

TEST_CASE("data without a whole global batch end with exit code 4", "[data_check]") {
  const std::string optimizer = "optimizer: {type: adamw, lr: 1e-3}\n";
  CHECK(found(loaded_with("train: {steps: 2, global_batch_size: 64}\n" + optimizer)) ==
        "data-too-small 4:38 64; 4");
  // The key that the user wrote is the place, also if the batch follows from it.
  CHECK(found(loaded_with("train: {steps: 2, micro_batch_size: 31}\n" + optimizer, 2)) ==
        "data-too-small 4:37 31; 4");
  // Together with a mistake in a key the key decides, and an epoch without steps has no length.
  CHECK(found(loaded_with("train: {epochs: 1, global_batch_size: 64}\n"
                          "optimizer: {type: adamw, lr: 1e-3, groups: [{match: 'x'}]}\n")) ==
        "data-too-small 4:39 64; pattern-unused 5:53 x; 3");
}

TEST_CASE("a batch that waits for the number of processes is not judged", "[data_check]") {
  CHECK(found(loaded_with("train: {steps: 2, micro_batch_size: 64}\n"
                          "optimizer: {type: adamw, lr: 1e-3, no_decay: ['zz']}\n",
                          0)) == "pattern-unused 5:46 zz; 3");
}

TEST_CASE("a part of a step that epochs leave becomes a step, and is said", "[data_check]") {
  const auto epochs = [](const std::string& count) {
    return found(loaded_with("train: {epochs: " + count +
                             ", global_batch_size: 6}\noptimizer: {type: adamw, lr: 1e-3}\n"));
  };
  CHECK(epochs("1") == "0");
  CHECK(epochs("0.3") == "0");  // 18 samples are 3 steps
  CHECK(epochs("1.1") == "0");
  CHECK(epochs("0.001") == "tokens-not-multiple 4:17 0.001; 0");
  CHECK(epochs("0.25") == "tokens-not-multiple 4:17 0.25; 0");
  const Loaded quarter = loaded_with(
      "train: {epochs: 0.25, global_batch_size: 6}\noptimizer: {type: adamw, lr: 1e-3}\n");
  const OpenedData data = open_data(quarter.config);
  const DataFindings findings = check_with_data(quarter, *data.train);
  REQUIRE(findings.diagnostics.size() == 1);
  CHECK(findings.diagnostics.front().severity == Diagnostic::Severity::note);
  CHECK(findings.diagnostics.front().message ==
        "0.25 epochs of 60 samples are rounded up to 3 steps of 6");
  CHECK(make_plan(quarter.config, 60).steps_note == "rounded up from 0.25 epochs");
}

TEST_CASE("all data files that are missing are told at once", "[data_check]") {
  Loaded loaded = loaded_with(kTrain + "optimizer: {type: adamw, lr: 1e-3}\n");
  Config config = loaded.config;
  config.data.type = DataType::text;
  config.data.tokenizer = TokenizerConfig{};
  config.model.vocab_size = 256;
  config.data.train = {{.path = "/none/a.txt", .weight = {}},
                       {.path = "/none/*.txt", .weight = {}}};
  config.data.eval = {{.path = "/none/b.txt", .weight = {}}};
  const auto told = [&] {
    try {
      static_cast<void>(open_data(config));
    } catch (const Error& error) {
      return fmt::format("{} {} {}: {}", error.exit_code(), error.id(), error.key(), error.what());
    }
    return std::string();
  };
  const std::string both = told();
  INFO(both);
  CHECK(both.starts_with("4 file-not-found data.train: 2 data files do not exist\n"));
  CHECK(both.find("\n  data.train  /none/a.txt\n  data.eval  /none/b.txt\n  fix   ") !=
        std::string::npos);
  config.data.train.erase(config.data.train.begin());
  CHECK(told().find("no file matches '/none/*.txt'") != std::string::npos);
  config.data.train = {{.path = "/none/a.txt", .weight = {}}};
  config.data.eval.clear();
  config.eval = {};
  CHECK(told().starts_with("4 file-not-found data.train: data file '/none/a.txt' does not exist"));
}

TEST_CASE("evaluation data are opened only if something evaluates", "[data_check]") {
  Loaded loaded = loaded_with(kTrain + "optimizer: {type: adamw, lr: 1e-3}\n");
  CHECK(open_data(loaded.config).eval == nullptr);
  loaded.config.eval.at_start = true;
  CHECK(open_data(loaded.config).eval->size() == 6);
}

}  // namespace colossal::test
