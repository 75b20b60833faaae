// Is the table of resume rules (config-and-cli 6.4) followed row by row?
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/stored_config.hpp"
#include "core/error.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "support/tiny_models.hpp"
#include "train/resume.hpp"

#include <ATen/ops/ones.h>

#include <array>

namespace colossal::test {

namespace fs = std::filesystem;

namespace {

/// A folder of checkpoints that hold one number each.
class Checkpoints {
 public:
  void save(std::int64_t step, bool weights_only = false) const {
    const std::array records = {
        TensorRecord{.name = "model/w", .global = {1}, .local = at::ones({1}), .regions = {one()}}};
    RunState state;
    state.step = step;
    state.weights_only = weights_only;
    save_checkpoint(root(), state, records, Comm(), {.keep_last = 100});
  }
  void damage(std::int64_t step) const { fs::remove(path(step) / "manifest.json"); }
  [[nodiscard]] fs::path root() const { return folder_.path() / "checkpoints"; }
  [[nodiscard]] fs::path path(std::int64_t step) const {
    return root() / fmt::format("step-{:08}", step);
  }
  /// Steps of the candidates.
  [[nodiscard]] std::vector<std::int64_t> choose(const std::string& mode) const {
    std::vector<std::int64_t> steps;
    for (const CheckpointInfo& info : choose_resume({mode, root()}).candidates) {
      steps.push_back(info.step);
    }
    return steps;
  }
  [[nodiscard]] std::string refusal(const std::string& mode) const {
    try {
      static_cast<void>(choose_resume({mode, root()}));
    } catch (const Error& error) {
      return fmt::format("{} {}", error.exit_code(), error.id());
    }
    return "";
  }

 private:
  static Region one() {
    Region region;
    region.global_offset = {0};
    region.local_offset = {0};
    region.extent = {1};
    return region;
  }
  TempDir folder_;
};

ResumeFacts facts(const Config& saved, const Config& now) {
  return {.saved = saved, .now = now, .saved_fingerprint = "a", .now_fingerprint = "a"};
}

std::string refusal(const ResumeFacts& compared, const std::vector<std::string>& allow = {}) {
  try {
    static_cast<void>(compare_for_resume(compared, allow));
  } catch (const Error& error) {
    return fmt::format("{} {}", error.exit_code(), error.id());
  }
  return "";
}

}  // namespace

TEST_CASE("an empty folder starts, unless a checkpoint is required", "[resume_rules]") {
  const Checkpoints none;
  CHECK(none.choose("auto").empty());
  CHECK(none.choose("never").empty());
  CHECK(none.refusal("require") == "5 checkpoint-required");
}

TEST_CASE("the newest complete checkpoint is first, by number", "[resume_rules]") {
  const Checkpoints saved;
  saved.save(900);
  saved.save(10000);
  saved.save(1000);
  CHECK(saved.choose("auto") == std::vector<std::int64_t>{10000, 1000, 900});
  CHECK(saved.choose("require") == std::vector<std::int64_t>{10000, 1000, 900});
  CHECK(saved.refusal("never") == "3 output-exists");
}

TEST_CASE("damaged checkpoints are passed over, never forgotten", "[resume_rules]") {
  const Checkpoints saved;
  saved.save(2);
  saved.save(4);
  saved.damage(4);
  const CheckpointChoice choice = choose_resume({"auto", saved.root()});
  CHECK(choice.candidates.front().step == 2);
  REQUIRE(choice.damaged.size() == 1);
  CHECK(choice.damaged.front().step == 4);
  saved.damage(2);
  CHECK(saved.refusal("auto") == "5 checkpoint-damaged");
  CHECK(saved.refusal("require") == "5 checkpoint-damaged");
  CHECK(saved.refusal("never") == "3 output-exists");
}

TEST_CASE("a path names one checkpoint and never mixes with others", "[resume_rules]") {
  const Checkpoints source;
  source.save(2);
  source.save(4);
  const Checkpoints empty;
  CHECK(empty.choose(source.path(2).string()) == std::vector<std::int64_t>{2});
  CHECK(empty.choose(source.root().parent_path().string()) == std::vector<std::int64_t>{4});
  CHECK(source.choose(source.path(4).string()) == std::vector<std::int64_t>{4});
  CHECK(source.refusal(source.path(2).string()) == "3 output-exists");
  CHECK(empty.refusal(empty.root().string()) == "5 checkpoint-none");
  CHECK(empty.refusal(source.path(3).string()) == "5 checkpoint-incomplete");
  CHECK(source.refusal(source.path(3).string()) == "5 checkpoint-incomplete");
}

TEST_CASE("weights alone are where a run begins, not where it goes on", "[resume_rules]") {
  const Checkpoints weights;
  weights.save(0, true);
  const std::string path = weights.root().string() + "/step-00000000";
  const Checkpoints own;
  CHECK(own.choose(path) == std::vector<std::int64_t>{0});
  CHECK(choose_resume({path, own.root()}).candidates.front().path == path);
  own.save(3);
  own.save(5);
  own.damage(5);
  const CheckpointChoice choice = choose_resume({path, own.root()});  // the same command again
  CHECK(choice.candidates.front().path == own.path(3));
  CHECK(choice.damaged.size() == 1);
  own.damage(3);
  CHECK(own.refusal(path) == "5 checkpoint-damaged");  // never back to the beginning
}

TEST_CASE("weights alone fit if the model computes the same function", "[resume_rules]") {
  const Config saved = tiny_gpt();
  const auto refused = [&](const std::function<void(Config&)>& change) {
    Config now = saved;
    change(now);
    ResumeFacts all = facts(saved, now);
    all.now_fingerprint = "other data";
    all.weights_only = true;
    return refusal(all);
  };
  CHECK(refused([](Config&) {}).empty());
  CHECK(refused([](Config& c) {
          c.optimizer.type = OptimizerType::lamb;
          c.train.global_batch_size *= 2;
          c.run.seed += 1;
          c.model.dropout = 0.5;
          c.data.type = DataType::text;
        }).empty());
  CHECK(refused([](Config& c) { c.model.num_heads *= 2; }) == "5 resume-mismatch");
  CHECK(refused([](Config& c) { c.model.norm_eps = 1e-3; }) == "5 resume-mismatch");
  CHECK(refused([](Config& c) { c.model.activation = ActivationKind::relu; }) ==
        "5 resume-mismatch");
}

TEST_CASE("equal configurations need no table", "[resume_rules]") {
  const Config config = tiny_gpt();
  CHECK(compare_for_resume(facts(config, config), {}).empty());
}

TEST_CASE("each class of key has its effect", "[resume_rules]") {
  const Config saved = tiny_gpt();
  Config now = saved;
  now.optimizer.lr = 0.5;
  now.logging.every_steps = 77;
  const std::string table = compare_for_resume(facts(saved, now), {});
  CHECK(table.find("optimizer.lr") != std::string::npos);
  CHECK(table.find("used from the first resumed step") != std::string::npos);
  CHECK(table.find("free to change") != std::string::npos);

  now.model.hidden_size *= 2;
  CHECK(refusal(facts(saved, now)) == "5 resume-mismatch");
  CHECK(refusal(facts(saved, now), {"model.hidden_size"}) == "5 resume-mismatch");
}

TEST_CASE("the order of samples may change between epochs, not inside one", "[resume_rules]") {
  const Config saved = tiny_gpt();
  const auto refused = [&](const std::function<void(Config&)>& change,
                           bool inside,
                           const std::vector<std::string>& allow = {}) {
    Config now = saved;
    change(now);
    ResumeFacts all = facts(saved, now);
    all.inside_epoch = inside;
    return refusal(all, allow);
  };
  const auto seed = [](Config& c) { c.run.seed += 1; };
  const auto order = [](Config& c) { c.data.shuffle = !c.data.shuffle; };
  CHECK(refused(seed, false).empty());
  CHECK(refused(order, false).empty());
  CHECK(refused(seed, true) == "5 resume-needs-allow");
  CHECK(refused(order, true) == "5 resume-needs-allow");
  CHECK(refused(seed, true, {"run.seed"}).empty());
  CHECK(refused(order, true, {"data.shuffle"}).empty());
  CHECK(refused(seed, true, {"data.shuffle"}) == "5 resume-needs-allow");
  CHECK(refused([](Config& c) { c.optimizer.lr *= 2; }, true).empty());
  // In the order of the files a seed orders nothing.
  Config before = saved;
  before.data.shuffle = false;
  Config after = before;
  seed(after);
  ResumeFacts sorted = facts(before, after);
  sorted.inside_epoch = true;
  CHECK(refusal(sorted).empty());
}

TEST_CASE("files drawn by weight end no epoch together", "[resume_rules]") {
  RunState state;
  DataConfig data;
  data.train = {{.path = "a"}, {.path = "b"}};
  const auto inside = [&](std::int64_t consumed) {
    state.consumed = consumed;
    return lies_inside_epoch(state, 80, data);
  };
  CHECK_FALSE(inside(0));
  CHECK(inside(72));
  CHECK_FALSE(inside(160));
  data.train.back().weight = 3;
  CHECK_FALSE(inside(0));
  CHECK(inside(72));
  CHECK(inside(160));
}

TEST_CASE("momentum may change, but neither begin nor end", "[resume_rules]") {
  Config saved = tiny_gpt();
  saved.optimizer.type = OptimizerType::sgd;
  saved.optimizer.momentum = 0.9;
  Config now = saved;
  now.optimizer.momentum = 0.8;
  CHECK(refusal(facts(saved, now)).empty());
  now.optimizer.momentum = 0;
  CHECK(refusal(facts(saved, now)) == "5 resume-mismatch");
  CHECK(refusal(facts(now, saved)) == "5 resume-mismatch");
  CHECK(refusal(facts(now, now)).empty());
}

TEST_CASE("batch and data may change only with --allow", "[resume_rules]") {
  const Config saved = tiny_gpt();
  Config now = saved;
  now.train.global_batch_size *= 2;
  CHECK(refusal(facts(saved, now)) == "5 resume-needs-allow");
  CHECK(refusal(facts(saved, now), {"train.global_batch_size"}).empty());
  ResumeFacts other_data = facts(saved, saved);
  other_data.now_fingerprint = "b";
  CHECK(refusal(other_data) == "5 resume-needs-allow");
  CHECK(refusal(other_data, {"data.fingerprint"}).empty());
}

TEST_CASE("a tokenizer with other files is refused even with --allow", "[resume_rules]") {
  const Config saved = tiny_gpt();
  ResumeFacts changed = facts(saved, saved);
  changed.saved_fingerprint = "a+x";
  changed.now_fingerprint = "a+y";
  CHECK(refusal(changed, {"data.fingerprint"}) == "5 resume-mismatch");
  changed.now_fingerprint = "b+x";
  CHECK(refusal(changed, {"data.fingerprint"}).empty());
}

TEST_CASE("a checkpoint takes the tokenizer it was trained with", "[resume_rules]") {
  CHECK_NOTHROW(check_tokenizer("x", "x"));
  CHECK_NOTHROW(check_tokenizer("", "x"));  // trained on ids of an unknown tokenizer
  for (const char* now : {"y", ""}) {
    try {
      check_tokenizer("x", now);
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK(error.id() == "tokenizer-mismatch");
      CHECK(error.exit_code() == 5);
    }
  }
}

TEST_CASE("a stored configuration is read back, or refused by name", "[resume_rules]") {
  RunState state;
  state.config_yaml = to_yaml(tiny_gpt());
  const Config once = stored_config(state);  // resolves what tiny_gpt() leaves open
  state.config_yaml = to_yaml(once);
  CHECK(diff(stored_config(state), once).empty());
  state.config_yaml = "from: the future\n";
  try {
    static_cast<void>(stored_config(state));
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.id() == "checkpoint-config");
    CHECK(error.exit_code() == 5);
  }
}

TEST_CASE("a stored configuration may have the keys of all placements", "[resume_rules]") {
  Config config = tiny_gpt();
  config.parallel.gemini = GeminiConfig{.placement = Placement::cpu};
  RunState state;
  state.config_yaml = to_yaml(config);
  const Config once = stored_config(state);
  const std::string word = "placement: cpu\n";
  const std::size_t at = state.config_yaml.find(word);
  REQUIRE(at != std::string::npos);
  const std::size_t indent = at - state.config_yaml.rfind('\n', at) - 1;
  const std::string space(indent, ' ');
  state.config_yaml.insert(at + word.size(),
                           space + "shard_param_frac: 1\n" + space + "const_budget: 5\n");
  CHECK(diff(stored_config(state), once).empty());

  const auto with = [&](const char* set) {
    LoadOptions options;
    options.overrides = {{.text = set}};
    return load_stored(state, options);
  };
  CHECK_FALSE(with("train.clip_grad_norm=2").has_errors());
  const Loaded wrong = with("parallel.gemini.margin_ratio=0.5");
  REQUIRE(wrong.has_errors());
  CHECK(wrong.diagnostics.front().id == "unused-section");
  CHECK(load_text(state.config_yaml, "by hand").has_errors());
}

}  // namespace colossal::test
