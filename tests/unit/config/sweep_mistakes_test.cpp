// Is every mistake in a sweep file found, where it is?
#include "support/catch.hpp"
#include "sweep_sandbox.hpp"

#include <utility>
#include <vector>

namespace colossal::test {
namespace {

/// What is wrong below the line of the base, and how it is told.
const std::vector<std::pair<std::string, std::string>> kMistakes = {
    {"paramters: {run.seed: [1]}", "unknown-key 2 1"},
    {"parameters: {run.seed: 1}", "wrong-type 2 24"},
    {"parameters: {run.seed: []}", "wrong-type 2 24"},
    {"parameters: [run.seed]", "wrong-type 2 13"},
    {"", "sweep-empty 1 1"},
    {"parameters: {}", "sweep-empty 1 1"},
    {"method: list", "required 1 1"},
    {"method: list\ntrials: []", "sweep-empty 1 1"},
    {"method: list\ntrials: {run.seed: 1}", "wrong-type 3 9"},
    {"method: list\ntrials: [1]", "wrong-type 3 10"},
    {"method: list\ntrials: [{run.seed: 1}]\nparameters: {run.seed: [1]}", "unused-section 4 1"},
    {"method: random\nparameters: {run.seed: {uniform: [1, 9]}}", "required 1 1"},
    {"method: random\nsamples: 2", "sweep-empty 1 1"},
    {"method: random\nsamples: 2\nparameters: {run.seed: [1, 2]}", "sweep-distribution 4 24"},
    {"method: random\nsamples: 2\nparameters: {run.seed: {uniform: [1]}}",
     "sweep-distribution 4 24"},
    {"method: random\nsamples: 2\nparameters: {run.seed: {uniform: [9, 1]}}",
     "sweep-distribution 4 24"},
    {"method: random\nsamples: 2\nparameters: {run.seed: {normal: [1, 2]}}",
     "sweep-distribution 4 24"},
    {"method: random\nsamples: 2\nparameters: {optimizer.lr: {log_uniform: [0, 1]}}",
     "sweep-distribution 4 28"},
    {"method: random\nsamples: 2\nparameters: {optimizer.lr: {uniform: [\"0\", 1]}}",
     "sweep-distribution 4 28"},
    {"method: random\nsamples: 2\nparameters: {run.seed: {choice: []}}", "sweep-distribution 4 24"},
    {"method: random\nsamples: 20k\nparameters: {run.seed: {uniform: [1, 9]}}",
     "sweep-too-large 1 1"},
    {"method: random\nsamples: 5\nparameters: {run.seed: {choice: [1, 2]}}",
     "duplicate-trial 4 37; duplicate-trial 4 37; duplicate-trial 4 37"},
    {"method: grids\nparameters: {run.seed: [1]}", "bad-enum 2 9"},
    {"samples: 2\nparameters: {run.seed: [1]}", "unused-section 2 1"},
    {"parameters: {run.seed: [1, 2, 1e0]}", "duplicate-trial 2 31"},
    {"parameters: {run.name: [a, b]}", "sweep-reserved 2 14"},
    {"parameters: {run.output_dir: [a]}", "sweep-reserved 2 14"},
    {"parameters: {checkpoint.resume: [never]}", "sweep-reserved 2 14"},
    {"parameters: {run: [{seed: 1}]}", "sweep-reserved 2 14"},
    {"parameters: {vars: [{a: 1}]}", "sweep-reserved 2 14"},
    {"parameters: {run.seed: [1]}\nzip: [{run.seed: [2]}]", "sweep-key-twice 3 8"},
    {"parameters: {data: [{type: synthetic, seq_length: 64}], data.seq_length: [32]}",
     "sweep-key-twice 2 57"},
    {"zip: [{run.seed: [1, 2], optimizer.lr: [0.1]}]", "sweep-zip 2 40"},
    {"zip: {run.seed: [1]}", "wrong-type 2 6"},
    {"parameters: {run.seed: [1]}\nexclude: [{run.seed: 2}]", "exclude-unused 3 11"},
    {"parameters: {run.seed: [1]}\nexclude: [{optimizer.lr: 1}]", "exclude-unused 3 11"},
    {"parameters: {run.seed: [1]}\nexclude: [{run.seed: 1}]", "sweep-empty 1 1"},
    {"parameters: {run.seed: [1]}\nname: a/b", "bad-name 3 7"},
    {"parameters: {run.seed: [1]}\nversion: 2", "version-newer 3 10"},
    {"parameters: {run.seed: [1]}\nrun: {output_dir: \"x/${vars.a}\"}", "interp-unknown 3 19"},
    {"parameters: {run.seed: [1]}\nrun: {output_dir: \"x/${name\"}", "interp-syntax 3 19"},
    {"parameters: {run.seed: [1]}\nrun: {nproc: 0}", "out-of-range 3 14"},
    {"parameters: {run.seed: [1]}\nrun: {nprocs: 2}", "unknown-key 3 7"},
    {"parameters: {run.seed: [1]}\nrun: {nproc: two}", "bad-int 3 14"},
    {"parameters: {run.seed: [1]}\nrun: {parallel: 0}", "out-of-range 3 17"},
    {"parameters: {run.seed: [1]}\nrun: {retries: -1}", "out-of-range 3 16"},
    {"parameters: {run.seed: [1]}\nrun: {on_failure: halt}", "bad-enum 3 19"},
    {"parameters: {run.seed: [1], run.seed: [2]}", "duplicate-key 2 29"},
    {"parameters: {\"run seed\": [1]}", "override-syntax 2 27"},
};

}  // namespace

TEST_CASE("mistakes in a sweep file are found by id and place", "[sweep]") {
  const SweepSandbox box;
  for (const auto& [text, expected] : kMistakes) {
    const Sweep sweep = box.load(kHead + text + "\n");
    INFO(text << "\n" << render(sweep.diagnostics));
    CHECK(summary(sweep) == expected);
    for (const Diagnostic& item : sweep.diagnostics) {
      CHECK_FALSE(item.fix.empty());
    }
  }
  CHECK(summary(box.load("parameters: {run.seed: [1]}\n")) == "required 1 1");
  CHECK(summary(box.load("base: none.yaml\nparameters: {run.seed: [1]}\n")) ==
        "file-not-found 1 7");
  CHECK(summary(load_sweep(box.path() / "none.yaml")).starts_with("file-not-found"));
}

}  // namespace colossal::test
