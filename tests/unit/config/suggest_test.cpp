// Is the key found that the user meant?
#include "config/suggest.hpp"

#include "config/flatten.hpp"
#include "config_sandbox.hpp"
#include "support/catch.hpp"

#include <algorithm>

using colossal::nearest;
using namespace colossal::detail;

namespace {

std::string suggestion(std::string_view section,
                       std::string_view key,
                       const std::vector<std::string>& siblings = {}) {
  return suggest_key(section, key, siblings, all_paths()).value_or("");
}

}  // namespace

TEST_CASE("edit distance counts insertions, deletions, changes and swaps", "[config]") {
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "abc") == 0);
  CHECK(edit_distance("abcd", "abdc") == 1);
  CHECK(edit_distance("wieght_decay", "weight_decay") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("nearest refuses far words", "[config]") {
  const std::vector<std::string> words = {"constant", "cosine"};
  CHECK(nearest("cosin", words) == "cosine");
  CHECK_FALSE(nearest("polynomial", words).has_value());
  CHECK_FALSE(nearest("x", {words.data(), 0}).has_value());
  CHECK_FALSE(nearest(std::string(10'000, 'c'), words).has_value());
}

TEST_CASE("a short word leads nowhere unless one change makes it a key", "[config]") {
  CHECK(suggestion("parallel", "tp").empty());
  CHECK(suggestion("parallel", "pp").empty());
  CHECK(suggestion("optimizer", "lt", {"lr", "type"}) == "optimizer.lr");
  CHECK(suggestion("run", "sed", {"seed"}) == "run.seed");
}

TEST_CASE("siblings win over other sections", "[config]") {
  CHECK(suggestion("optimizer", "wieght_decay", {"lr", "weight_decay"}) ==
        "optimizer.weight_decay");
  CHECK(suggestion("eval", "every_step", {"every_steps"}) == "eval.every_steps");
}

TEST_CASE("keys of other sections are found by their last component", "[config]") {
  CHECK(suggestion("", "lr") == "optimizer.lr");
  CHECK(suggestion("train", "seq_length", {"steps"}) == "data.seq_length");
  CHECK(suggestion("", "tokenizer") == "data.tokenizer");
  CHECK(suggestion("model", "include", {"type"}) == "model.extends");
}

TEST_CASE("names of other trainers lead to keys that exist", "[config]") {
  CHECK(suggestion("train", "learning_rate") == "optimizer.lr");
  CHECK(suggestion("train", "batch_size", {"micro_batch_size"}) == "train.global_batch_size");
  CHECK(suggestion("train", "grad_accum_steps") == "train.gradient_accumulation");
  CHECK(suggestion("", "n_layer") == "model.num_layers");
  CHECK(suggestion("", "bf16") == "train.precision");
  CHECK(suggestion("parallel", "zero_stage") == "parallel.zero.stage");
  const auto paths = all_paths();
  for (const char* name : {"learning_rate",
                           "batch_size",
                           "num_microbatches",
                           "fp16",
                           "dp",
                           "max_steps",
                           "clip_grad",
                           "save_interval",
                           "eval_interval",
                           "log_interval",
                           "d_model",
                           "n_head",
                           "block_size",
                           "num_train_epochs",
                           "per_device_train_batch_size"}) {
    INFO(name);
    CHECK(std::find(paths.begin(), paths.end(), suggestion("", name)) != paths.end());
  }
}

TEST_CASE("a misspelt required key is one error, not two", "[config]") {
  const colossal::test::ConfigSandbox box;
  const auto found = [&](const std::string& from, const std::string& to) {
    std::string text = colossal::test::kSynthetic;
    text.replace(text.find(from), from.size(), to);
    return colossal::test::summary(box.load(text));
  };
  CHECK(found("hidden_size", "hiden_size") == "unknown-key 2 35");
  CHECK(found("optimizer:", "optimiser:") == "unknown-key 5 1");
  CHECK(found("steps:", "max_steps:") == "unknown-key 4 9");
  CHECK(found("hidden_size", "zzz") == "required 2 1; unknown-key 2 35");
}

TEST_CASE("the nearest file is found by its name, its stem, or in the nearest folder", "[config]") {
  const colossal::test::ConfigSandbox box;
  box.write("configs/tiny-cpu.yaml", "");
  box.write("configs/gpt-kjv.yaml", "");
  box.write("configs/notes.txt", "");
  const std::string folder = box.path().string();
  const auto near = [&](const std::string& name) {
    const auto found = colossal::nearest_file(box.path() / name);
    return found ? found->substr(folder.size() + 1) : "";
  };
  CHECK(near("configs/tiny-cup.yaml") == "configs/tiny-cpu.yaml");
  CHECK(near("configs/tiny-cpu") == "configs/tiny-cpu.yaml");
  CHECK(near("configs/gpt-kjv.yml") == "configs/gpt-kjv.yaml");
  CHECK(near("cofnigs/gpt-kjv.yaml") == "configs/gpt-kjv.yaml");
  CHECK(near("cofnigs/gpt.yaml").empty());  // two mistakes at once
  CHECK(near("configs/bert-large.yaml").empty());
  CHECK(near("configs/").empty());
  CHECK(near("no/such/folder/x.yaml").empty());
}

TEST_CASE("a name without a folder is looked for in the working directory", "[config]") {
  const colossal::test::ConfigSandbox box;
  box.write("tiny.yaml", "");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(box.path());
  const auto found = colossal::nearest_file("tinny.yaml");
  const auto none = colossal::nearest_file("");
  std::filesystem::current_path(before);
  CHECK(found == "tiny.yaml");
  CHECK_FALSE(none.has_value());
}

TEST_CASE("a folder that cannot be read holds nothing", "[config]") {
  const colossal::test::ConfigSandbox box;
  box.write("b.yaml", "");
  box.write("a.yaml", "");
  CHECK(colossal::files_in(box.path()) == std::vector<std::string>{"a.yaml", "b.yaml"});
  CHECK(colossal::files_in(box.path() / "a.yaml").empty());
  CHECK(colossal::files_in(box.path() / "none").empty());
}
