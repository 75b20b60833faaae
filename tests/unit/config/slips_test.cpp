// Are a missing colon and a missing space told as such, and nothing else?
#include "config/slips.hpp"

#include "config_sandbox.hpp"
#include "support/catch.hpp"

namespace colossal::test {
namespace {

/// What the slip in a text says: "type [:] text"; empty if there is none.
std::string slip(const std::string& text) {
  const auto found = detail::find_slip(text);
  return found ? found->key + (found->has_colon ? " [ ] " : " [:] ") + found->value : "";
}

/// kSynthetic with its `train` section written anew, as lines of its own at the end.
std::string ending_with(const std::string& lines) {
  std::string text = kSynthetic;
  const std::size_t at = text.find("train: {");
  return text.erase(at, text.find('\n', at) + 1 - at) + lines;
}

/// The only diagnostic as "id line col: fix".
std::string told(const Loaded& loaded) {
  INFO(render(loaded.diagnostics));
  REQUIRE(loaded.diagnostics.size() == 1);
  return summary(loaded) + ": " + loaded.diagnostics[0].fix;
}

}  // namespace

TEST_CASE("a slip is known by the key it begins with", "[config]") {
  CHECK(slip("type text") == "type [:] text");
  CHECK(slip("  type    text   # a comment") == "type [:] text");
  CHECK(slip("steps:30") == "steps [ ] 30");
  CHECK(slip("  - name:tiny,") == "name [ ] tiny");
  CHECK(slip("train:{steps: 30}") == "train [ ] ");
  CHECK(slip("data {type: text}") == "data [:] ");
  CHECK(slip("extends base.yaml") == "extends [:] base.yaml");
  for (const char* text : {"checkpoint_engine fast",  // no key
                           "steps: 30",
                           "steps : 30",
                           "steps:",
                           "steps",
                           "steps   # how many",
                           "'steps' 30",
                           "- 3",
                           "-",
                           "   ",
                           ""}) {
    INFO(text);
    CHECK(slip(text).empty());
  }
  CHECK(detail::find_slip("    - type text")->begin == 6);
}

TEST_CASE("a missing colon is found wherever the parser stops", "[config]") {
  const ConfigSandbox box;
  const std::string fix = "write `steps: 30`";
  // The next key stops the parser, the end of the mapping, or nothing at all.
  CHECK(told(box.load(ending_with("train:\n  steps 30\n  micro_batch_size: 4\n"))) ==
        "missing-colon 6 3: " + fix);
  CHECK(told(box.load(ending_with("train:\n  micro_batch_size: 4\n  steps 30\n"))) ==
        "missing-colon 7 3: " + fix);
  CHECK(told(box.load(
            ending_with("train:\n  micro_batch_size: 4\n  steps 30\n\n# more\nrun: {}\n"))) ==
        "missing-colon 7 3: " + fix);
  CHECK(told(box.load(ending_with("train:\n  steps 30\n"))) == "missing-colon 6 3: " + fix);
  CHECK(told(box.load(ending_with("train: {steps 30, micro_batch_size: 4}\n"))) ==
        "missing-colon 5 9: " + fix);
  CHECK(told(box.load(ending_with("train {steps: 30, micro_batch_size: 4}\n"))) ==
        "missing-colon 5 1: write `train: ` and then its value");
  CHECK(told(box.load("version 1\n")) == "missing-colon 1 1: write `version: 1`");
}

TEST_CASE("a missing space after a colon is found in blocks, in braces and in --set", "[config]") {
  const ConfigSandbox box;
  const std::string fix = "write `steps: 30`";
  CHECK(told(box.load(ending_with("train:\n  steps:30\n  micro_batch_size: 4\n"))) ==
        "missing-space 6 3: " + fix);
  CHECK(told(box.load(ending_with("train:\n  micro_batch_size: 4\n  steps:30\nrun: {}\n"))) ==
        "missing-space 7 3: " + fix);
  CHECK(told(box.load(ending_with("train: {steps:30, micro_batch_size: 4}\n"))) ==
        "missing-space 5 9: " + fix);
  CHECK(told(box.load(ending_with("train: {micro_batch_size: 4, steps:30}\n"))) ==
        "missing-space 5 30: " + fix);
  CHECK(told(box.load(ending_with("train:{steps: 30}\n"))) ==
        "missing-space 5 1: write `train: ` and then its value");
  CHECK(told(box.load(kSynthetic, options({"run.seed=1", "train={steps:30}"}))) ==
        "missing-space 2 0: " + fix);
  CHECK(told(box.load("steps:30\n")) == "missing-space 1 1: " + fix);
}

TEST_CASE("several slips come together", "[config]") {
  const ConfigSandbox box;
  CHECK(summary(box.load(ending_with("train: {steps:30, micro_batch_size 4}\n"))) ==
        "missing-space 5 9; missing-colon 5 19");
}

TEST_CASE("what only looks like a slip keeps its own error", "[config]") {
  const ConfigSandbox box;
  CHECK(summary(box.load(kSynthetic + "foo bar\n")) == "unknown-key 6 1");
  CHECK(summary(box.load(kSynthetic + "'steps 30':\n")) == "unknown-key 6 1");
  CHECK(summary(box.load(kSynthetic + "run: some name\n")) == "wrong-type 6 6");
  CHECK(summary(box.load(kSynthetic + "run: 'name x'\n")) == "wrong-type 6 6");
  CHECK(told(box.load(kSynthetic + "run: name: a\n")) ==
        "yaml-syntax 6 10: put the value in quotes if it contains ': '");
}

TEST_CASE("lines that only begin with the name of a key are not blamed", "[config]") {
  const ConfigSandbox box;
  // The second line of a text, the lines of a block text, words of a list, a quoted text.
  for (const std::string lines : {"vars:\n  a: words and\n    data that follows\n  b: ]\n",
                                  "vars:\n  a: |\n    steps 30\n  b: ]\n",
                                  "vars:\n  a: [x,\n    data here]\n  b: ]\n",
                                  "vars:\n  a: \"x\n    train more\"\n  b: ]\n"}) {
    INFO(lines);
    const Loaded loaded = box.load(kSynthetic + lines);
    REQUIRE(loaded.diagnostics.size() == 1);
    CHECK(loaded.diagnostics[0].id != "missing-colon");
    CHECK(loaded.diagnostics[0].origin.line == 9);
  }
  // and a slip in the same place still is
  CHECK(summary(box.load(kSynthetic + "vars:\n  a: b\nrun:\n  name x\n  seed: 3\n")) ==
        "missing-colon 9 3");
}

TEST_CASE("a missing comma between braces is named", "[config]") {
  const ConfigSandbox box;
  CHECK(told(box.load(kSynthetic + "run: {name: a seed: 3}\n")) ==
        "yaml-syntax 6 19: put a comma before `seed`");
  CHECK(told(box.load(kSynthetic + "run: {name: a, seed: 3 device: cpu}\n")) ==
        "yaml-syntax 6 30: put a comma before `device`");
}

}  // namespace colossal::test
