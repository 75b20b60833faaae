// Does any damage to a valid file end in diagnostics or in a valid configuration, and never in a
// crash?
#include "config_sandbox.hpp"
#include "support/catch.hpp"

#include <random>

namespace colossal::test {
namespace {

const std::string kSeed =
    kText +
    "# room for edits that change nothing ........................................\n"
    "run: {name: fuzz, seed: 1e3}  # .........................................\n"
    "scheduler:\n  type: cosine\n  warmup_ratio: .1\n"
    "eval: {at_start: false}\n"
    "logging:\n  - &a [1, 'x', \"y\"]\n";

/// One random edit of one place.
std::string mutate(std::string text, std::mt19937& random) {
  static const std::vector<std::string> kPieces = {"'",
                                                   "\"",
                                                   "[",
                                                   "]",
                                                   "{",
                                                   "}",
                                                   ":",
                                                   ": ",
                                                   ",",
                                                   "\n",
                                                   "\t",
                                                   "#",
                                                   "&a ",
                                                   "*a",
                                                   "!t ",
                                                   "- ",
                                                   "? ",
                                                   "|",
                                                   ">",
                                                   "<<: ",
                                                   "null",
                                                   "~",
                                                   "1e999",
                                                   "-1",
                                                   "0x1",
                                                   "\xff",
                                                   "\r\n",
                                                   "---\n",
                                                   "...",
                                                   "%",
                                                   "@",
                                                   "auto",
                                                   "extends: run.yaml\n",
                                                   std::string(1, '\0'),
                                                   "  "};
  const std::size_t at = random() % text.size();
  switch (random() % 4) {
    case 0:
      return text.insert(at, kPieces[random() % kPieces.size()]);
    case 1:
      return text.erase(at, 1 + random() % 8);
    case 2:
      text[at] = static_cast<char>(random() % 256);
      return text;
    default:
      return text.substr(0, at) + text.substr(random() % text.size());
  }
}

}  // namespace

TEST_CASE("mutated files never crash the loader", "[config]") {
  const ConfigSandbox box;
  std::mt19937 random(20261128);
  int valid = 0;
  int invalid = 0;
  for (int round = 0; round < 320; ++round) {
    std::string text = kSeed;
    if (round % 2 == 0) {
      text.erase(text.find("logging:"));  // a valid start
    }
    for (int edit = round % 3; edit >= 0; --edit) {
      text = mutate(text, random);
      if (text.empty()) {
        text = "x";
      }
    }
    const Loaded loaded = box.load(text, options({}, 1 + round % 2));
    if (loaded.has_errors()) {
      ++invalid;
      INFO(text);
      REQUIRE(render(loaded.diagnostics).size() > 20);
    } else {
      ++valid;
      REQUIRE(loaded.config.train.global_batch_size > 0);
      REQUIRE(loaded.config.model.hidden_size % loaded.config.model.num_heads == 0);
    }
  }
  CHECK(valid > 10);
  CHECK(invalid > 200);
}

TEST_CASE("mutated overrides never crash the loader", "[config]") {
  const ConfigSandbox box;
  const auto path = box.write("run.yaml", kText);
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const std::string text = mutate("optimizer.groups[0].match=[{a: 'b'}]", random);
    CHECK_NOTHROW(load(path, options({text})));
  }
}

}  // namespace colossal::test
