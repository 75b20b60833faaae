// Does a sweep file give the trials that it means, and only valid ones?
#include "config/sweep.hpp"

#include "config/scalar.hpp"
#include "support/catch.hpp"
#include "sweep_sandbox.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace colossal::test {
namespace {

namespace fs = std::filesystem;

/// The overrides of all trials, one a line; fails the test if the sweep has errors.
std::string trials(const Sweep& sweep) {
  INFO(render(sweep.diagnostics));
  CHECK_FALSE(sweep.has_errors());
  std::string text;
  for (const SweepTrial& trial : sweep.trials) {
    text += trial.overrides + "\n";
  }
  return text;
}

std::vector<double> drawn(const SweepSandbox& box, int samples, const std::string& parameters) {
  const Sweep sweep = box.load(fmt::format(
      "{}method: random\nsamples: {}\nseed: 3\nparameters: {}\n", kHead, samples, parameters));
  INFO(render(sweep.diagnostics));
  REQUIRE(std::ssize(sweep.trials) == samples);
  std::vector<double> values;
  for (const SweepTrial& trial : sweep.trials) {
    values.push_back(std::get<double>(detail::parse_real(trial.sets.back().value)));
  }
  return values;
}

}  // namespace

TEST_CASE("a grid has every combination, the last key fastest, blocks of zip as one axis",
          "[sweep]") {
  const SweepSandbox box;
  CHECK(trials(box.load(kHead +
                        "parameters:\n"
                        "  optimizer.lr: [3e-4, 6e-4]\n"
                        "  run.seed: [1, 2]\n"
                        "zip:\n"
                        "  - {train.micro_batch_size: [2, 8], train.steps: [1k, 2_000]}\n")) ==
        R"({"optimizer.lr":0.0003,"run.seed":1,"train.micro_batch_size":2,"train.steps":1000}
{"optimizer.lr":0.0003,"run.seed":1,"train.micro_batch_size":8,"train.steps":2000}
{"optimizer.lr":0.0003,"run.seed":2,"train.micro_batch_size":2,"train.steps":1000}
{"optimizer.lr":0.0003,"run.seed":2,"train.micro_batch_size":8,"train.steps":2000}
{"optimizer.lr":0.0006,"run.seed":1,"train.micro_batch_size":2,"train.steps":1000}
{"optimizer.lr":0.0006,"run.seed":1,"train.micro_batch_size":8,"train.steps":2000}
{"optimizer.lr":0.0006,"run.seed":2,"train.micro_batch_size":2,"train.steps":1000}
{"optimizer.lr":0.0006,"run.seed":2,"train.micro_batch_size":8,"train.steps":2000}
)");
}

TEST_CASE("exclude leaves out what has all of its values, in whatever form they are written",
          "[sweep]") {
  const SweepSandbox box;
  CHECK(trials(box.load(
            kHead + "parameters: {optimizer.lr: [0.001, 0.01], train.steps: [50, 1k]}\n"
                    "exclude: [{optimizer.lr: 1e-3, train.steps: 1000}, {train.steps: 5e1}]\n")) ==
        "{\"optimizer.lr\":0.01,\"train.steps\":1000}\n");
}

TEST_CASE("a list has the trials that are written, the base itself among them", "[sweep]") {
  const SweepSandbox box;
  CHECK(trials(box.load(kHead +
                        "method: list\n"
                        "trials:\n"
                        "  - {}\n"
                        "  - {optimizer.lr: 0.5, optimizer.betas: [0.8, 0.9]}\n"
                        "  - {parallel.gemini: {placement: cpu}}\n"
                        "  - {parallel.gemini: null, train.activation_checkpoint: full}\n")) ==
        R"({}
{"optimizer.betas":[0.8,0.9],"optimizer.lr":0.5}
{"parallel.gemini":{"placement":"cpu"}}
{"parallel.gemini":null,"train.activation_checkpoint":"full"}
)");
}

TEST_CASE("an id stands for the overrides and for what the base says, not for how it says it",
          "[sweep]") {
  const SweepSandbox box;
  const std::string text = kHead + "parameters: {optimizer.lr: [3e-4], train.steps: [5k]}\n";
  const std::string id = box.load(text).trials.at(0).id;
  CHECK(id.size() == 8);
  CHECK(id.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(box.load(text).trials.at(0).name() == "0000-" + id);
  CHECK(box.load("# a comment\n" + kHead +
                 "parameters: {train.steps: [5_000], optimizer.lr: [0.00030]}\n")
            .trials.at(0)
            .id == id);
  box.box.write("base.yaml", "# another comment\n" + kSynthetic + "run: null\n");
  CHECK(box.load(text).trials.at(0).id != id);  // `run: null` is a key of the base
  box.box.write("base.yaml", "# another comment\n" + kSynthetic);
  CHECK(box.load(text).trials.at(0).id == id);
  box.box.write("parent.yaml", kSynthetic);
  box.box.write("base.yaml", "extends: parent.yaml\n");
  CHECK(box.load(text).trials.at(0).id == id);
  box.box.write("parent.yaml", with_optimizer("type: adam"));
  CHECK(box.load(text).trials.at(0).id != id);
  CHECK(
      box.load(kHead + "parameters: {optimizer.lr: [1e-4], train.steps: [5k]}\n").trials.at(0).id !=
      id);
}

TEST_CASE("more samples and more keys change no earlier draw; another seed changes all",
          "[sweep]") {
  const SweepSandbox box;
  const std::string lr = "{optimizer.lr: {log_uniform: [1e-5, 1e-2]}}";
  const std::vector<double> few = drawn(box, 10, lr);
  const std::vector<double> many = drawn(box, 40, lr);
  CHECK(std::equal(few.begin(), few.end(), many.begin()));
  CHECK(drawn(box,
              10,
              "{model.dropout: {uniform: [0, 0.3]}, optimizer.lr: {log_uniform: [1e-5, 1e-2]}}") ==
        few);
  const Sweep other =
      box.load(kHead + "method: random\nsamples: 10\nseed: 4\nparameters: " + lr + "\n");
  CHECK(other.trials.at(0).sets.at(0).value != detail::real_text(few[0]));
  CHECK(std::set<double>(many.begin(), many.end()).size() == 40);
}

TEST_CASE("draws fill their interval as their distribution says", "[sweep]") {
  const SweepSandbox box;
  constexpr int kSamples = 400;
  const auto share_below = [](const std::vector<double>& values, double limit) {
    return static_cast<double>(
               std::ranges::count_if(values, [&](double value) { return value < limit; })) /
           static_cast<double>(values.size());
  };
  const auto [low, high] = std::pair(0.002, 0.2);
  const std::vector<double> linear =
      drawn(box, kSamples, "{optimizer.lr: {uniform: [0.002, 0.2]}}");
  const std::vector<double> log =
      drawn(box, kSamples, "{optimizer.lr: {log_uniform: [2e-3, 0.2]}}");
  for (const std::vector<double>* values : {&linear, &log}) {
    CHECK(*std::ranges::min_element(*values) >= low);
    CHECK(*std::ranges::max_element(*values) <= high);
  }
  CHECK(share_below(linear, 0.101) == Approx(0.5).margin(0.08));
  CHECK(share_below(log, 0.02) == Approx(0.5).margin(0.08));  // the geometric mean
  for (const double value : log) {
    CHECK(std::stod(fmt::format("{:.6g}", value)) == value);
  }
}

TEST_CASE("keys that take whole numbers get whole numbers, both bounds included", "[sweep]") {
  const SweepSandbox box;
  const std::vector<double> layers =
      drawn(box, 300, "{run.seed: {uniform: [0, 1k]}, model.num_layers: {uniform: [1, 3]}}");
  const std::set<double> values(layers.begin(), layers.end());
  CHECK(values == std::set<double>{1, 2, 3});
  CHECK(std::ranges::count(layers, 2.0) > 70);
  const Sweep half = box.load(kHead +
                              "method: random\nsamples: 2\n"
                              "parameters: {model.num_layers: {uniform: [1, 2.5]}}\n");
  CHECK(summary(half) == "sweep-distribution 4 32");
}

TEST_CASE("a choice takes each of its values as it is written", "[sweep]") {
  const SweepSandbox box;
  const Sweep sweep =
      box.load(kHead +
               "method: random\nsamples: 60\nparameters:\n"
               "  optimizer.lr: {log_uniform: [1e-4, 1e-2]}\n"
               "  optimizer.type: {choice: [adamw, lamb]}\n"
               "  train.activation_checkpoint: {choice: [none, {mode: full, every: 2}]}\n");
  std::map<std::string, int> seen;
  for (const SweepTrial& trial : sweep.trials) {
    ++seen[trial.sets.at(1).value];
    ++seen[trial.sets.at(2).value];
  }
  INFO(render(sweep.diagnostics));
  CHECK(sweep.trials.size() == 60);
  CHECK(seen.size() == 4);
  CHECK(seen["adamw"] > 15);
  CHECK(seen["{mode: full, every: 2}"] > 15);
}

TEST_CASE("every trial is checked before any is used, and its errors point into the sweep",
          "[sweep]") {
  const SweepSandbox box;
  const Sweep sweep = box.load(kHead +
                               "parameters:\n"
                               "  optimizer.lr: [0.1, -1, 0.2]\n"
                               "  model.num_heads: [4, 5]\n"
                               "  model.dorpout: [0.1]\n");
  // each once, although three trials share a wrong number of heads and six a wrong key
  CHECK(summary(sweep) == "out-of-range 3 23; unknown-key 5 19");
  const std::string text = render(sweep.diagnostics);
  INFO(text);
  CHECK(text.find("s.yaml:3:23: error: optimizer.lr: -1 is not > 0 [out-of-range]") !=
        std::string::npos);
  CHECK(text.find("  optimizer.lr: [0.1, -1, 0.2]\n") != std::string::npos);
  CHECK(text.find("did you mean `model.dropout`?") != std::string::npos);
  CHECK(text.find("\"model.num_heads\":4,\"optimizer.lr\":-1} and 1 more") != std::string::npos);

  const Sweep rules =
      box.load(kHead + "parameters: {model.num_heads: [4, 5, 7], run.seed: [1, 2]}\n");
  CHECK(summary(rules) == "heads-divisible 2 35; heads-divisible 2 38");
}

TEST_CASE("a wrong base is told once, where it is", "[sweep]") {
  const SweepSandbox box(kSynthetic + "optimiser: {}\n");
  const Sweep sweep = box.load(kHead + "parameters: {run.seed: [1, 2, 3]}\n");
  REQUIRE(sweep.diagnostics.size() == 1);
  CHECK(sweep.diagnostics[0].origin.file == (box.path() / "base.yaml").string());
  CHECK(summary(sweep) == "unknown-key 6 1");
}

TEST_CASE("trials may give what the base lacks", "[sweep]") {
  const SweepSandbox box(kSynthetic.substr(0, kSynthetic.find("optimizer:")));
  CHECK(trials(box.load(kHead + "parameters: {optimizer: [{type: sgd, lr: 0.1}]}\n")) ==
        "{\"optimizer\":{\"lr\":0.1,\"type\":\"sgd\"}}\n");
}

TEST_CASE("the number of processes is part of the check", "[sweep]") {
  const SweepSandbox box("parallel: {data: auto}\n" + kSynthetic);
  const std::string text = kHead + "parameters: {train.global_batch_size: [8, 16]}\n";
  const std::string two = text + "run: {nproc: 2}\n";
  CHECK(trials(box.load(two)).size() > 0);
  CHECK(box.load(two).nproc == "2");
  CHECK_FALSE(box.load(text).nproc.has_value());
  CHECK(box.load(text).parallel == 1);
  CHECK(box.load(text).retries == 0);
  CHECK_FALSE(box.load(text).stops_on_failure);
  const Sweep run = box.load(text + "run: {parallel: 3, retries: 2, on_failure: stop}\n");
  CHECK(run.parallel == 3);
  CHECK(run.retries == 2);
  CHECK(run.stops_on_failure);
  const Sweep four = box.load(text + "run: {nproc: 4}\n");  // 8 is half of 4 x 4
  CHECK(summary(four) == "batch-mismatch 2 40");
  CHECK(render(four.diagnostics).find("run.nproc 4 of the sweep") != std::string::npos);

  const SweepSandbox fixed("parallel: {data: 2}\n" + kSynthetic);
  const std::string seeds = kHead + "parameters: {run.seed: [1, 2]}\n";
  CHECK(summary(fixed.load(seeds)) == "world-size 1 18");
  const Sweep automatic = fixed.load(seeds + "run: {nproc: auto}\n");
  CHECK(trials(automatic).size() > 0);
  CHECK(automatic.nproc == "auto");
}

TEST_CASE("variables may be swept unless the base's folder is made of them", "[sweep]") {
  const SweepSandbox box(
      "vars: {rate: 0.1, place: here}\n"
      "run: {output_dir: \"runs/${vars.place}\"}\n" +
      kSynthetic.substr(0, kSynthetic.find("optimizer:")) +
      "optimizer: {type: sgd, lr: \"${vars.rate}\"}\n");
  CHECK(trials(box.load(kHead + "parameters: {vars.rate: [0.2, 0.3]}\n")) ==
        "{\"vars.rate\":0.2}\n{\"vars.rate\":0.3}\n");
  const Sweep place = box.load(kHead + "parameters: {vars.place: [a, b]}\n");
  CHECK(summary(place) == "sweep-reserved 2 27");
  CHECK(place.diagnostics.at(0).why.find("run.output_dir") != std::string::npos);
}

TEST_CASE("a value may use other keys, and is checked with what they give", "[sweep]") {
  const SweepSandbox box;
  const Sweep sweep = box.load(
      kHead +
      "parameters: {model.num_heads: [2, 4], model.hidden_size: [\"${model.num_heads}0\"]}\n");
  CHECK(trials(sweep) ==
        "{\"model.hidden_size\":\"${model.num_heads}0\",\"model.num_heads\":2}\n"
        "{\"model.hidden_size\":\"${model.num_heads}0\",\"model.num_heads\":4}\n");
}

TEST_CASE("paths start at the file that contains them", "[sweep]") {
  const SweepSandbox box(kText);
  const Sweep sweep = box.load(
      "base: ../base.yaml\n"
      "run: {output_dir: \"out/${name}\"}\n"
      "parameters:\n"
      "  data.train: [[x.txt], [{path: ../y.txt, weight: 2}], [/abs/z.txt]]\n"
      "  data.tokenizer: [{type: bpe, path: tok}, {type: byte}]\n",
      "deep/er.yaml");
  INFO(render(sweep.diagnostics));
  REQUIRE(sweep.trials.size() == 6);
  CHECK(sweep.base == (box.path() / "base.yaml").string());
  CHECK(sweep.output_dir == (box.path() / "deep/out/er").string());
  CHECK(sweep.trials[0].sets[0].value == "[" + (box.path() / "deep/x.txt").string() + "]");
  CHECK(sweep.trials[0].sets[1].value ==
        "{type: bpe, path: " + (box.path() / "deep/tok").string() + "}");
  CHECK(sweep.trials[2].sets[0].value ==
        "[{path: " + (box.path() / "y.txt").string() + ", weight: 2}]");
  CHECK(sweep.trials[4].sets[0].value == "[/abs/z.txt]");
  // where the sweep lies is no part of a trial
  CHECK(sweep.trials[0].overrides.find(box.path().string()) == std::string::npos);
  CHECK(SweepSandbox().load(kHead + "parameters: {run.seed: [1]}\n").output_dir ==
        (fs::current_path() / "sweeps" / "s").string());
}

TEST_CASE("at most twenty errors are shown, and how many more there are", "[sweep]") {
  const SweepSandbox box;
  std::string values;
  for (int i = 1; i <= 30; ++i) {
    values += fmt::format("{}-{}", i > 1 ? ", " : "", i);
  }
  const Sweep sweep = box.load(kHead + "parameters: {optimizer.lr: [" + values + "]}\n");
  CHECK(sweep.has_errors());
  CHECK(sweep.diagnostics.size() == 21);
  CHECK(sweep.diagnostics.back().message == "10 more errors are not shown");
}

TEST_CASE("warnings do not stop a sweep", "[sweep]") {
  const SweepSandbox box;
  const Sweep sweep = box.load(kHead + "parameters: {optimizer.lr: [0.1, 2]}\n");
  CHECK_FALSE(sweep.has_errors());
  CHECK(summary(sweep) == "lr-too-large 2 34");
}

TEST_CASE("a sweep may extend another", "[sweep]") {
  const SweepSandbox box;
  box.box.write("common.yaml", kHead + "parameters: {run.seed: [1, 2], optimizer.lr: [0.1]}\n");
  CHECK(trials(box.load("extends: common.yaml\nparameters: {optimizer.lr: [0.2, 0.3]}\n")) ==
        R"({"optimizer.lr":0.2,"run.seed":1}
{"optimizer.lr":0.3,"run.seed":1}
{"optimizer.lr":0.2,"run.seed":2}
{"optimizer.lr":0.3,"run.seed":2}
)");
}

}  // namespace colossal::test
