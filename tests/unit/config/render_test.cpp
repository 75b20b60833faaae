// Does the error text have the form of config-and-cli section 4?
#include "config_sandbox.hpp"
#include "core/color.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <sstream>

namespace colossal::test {
namespace {

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    result.push_back(line);
  }
  return result;
}

}  // namespace

TEST_CASE("nothing to say is said with nothing", "[config]") {
  CHECK(render({}).empty());
}

TEST_CASE("an error shows place, source, keys, reason and fix", "[config]") {
  const ConfigSandbox box;
  const std::string file = (box.path() / "run.yaml").string();
  const Loaded loaded = box.load(kSynthetic + "run: {seed: 1}\n", options({"model.num_heads=25"}));
  CHECK(lines(render(loaded.diagnostics)) ==
        std::vector<std::string>{
            "--set#1: error: num_heads 25 does not divide hidden_size 64 [heads-divisible]",
            "  key   model.num_heads = 25               (--set#1)",
            "  with  model.hidden_size = 64             (" + file + ":2:48)",
            "  why   each head gets hidden_size / num_heads whole channels",
            "  fix   num_heads: 1 | 2 | 4 | 8 | 16 | 32 | 64",
            "1 error"});
}

TEST_CASE("the caret marks the token, counted in characters", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(kSynthetic + "run: {name: \"\xc3\xa9\", sede: 12}\n");
  const auto text = lines(render(loaded.diagnostics));
  REQUIRE(text.size() >= 3);
  CHECK(text[1] == "     6 | run: {name: \"\xc3\xa9\", sede: 12}");
  CHECK(text[2] == "       |                  ^~~~");
}

TEST_CASE("a line of a hundred kilobytes is cut around the caret", "[config]") {
  const ConfigSandbox box;
  const std::string long_list = "[" + std::string(100'000, '9') + "]";
  const std::string accents = [] {
    std::string text;
    for (int i = 0; i < 300; ++i) {
      text += "\xc3\xa9";
    }
    return text;
  }();
  const Loaded loaded = box.load(kSynthetic + "run: {name: \"" + accents +
                                 "\", sede: 12, seed: " + long_list + "}\n");
  const std::string text = render(loaded.diagnostics);
  INFO(text.substr(0, 3000));
  CHECK(text.find(" | ... \xc3\xa9") != std::string::npos);
  for (const std::string& line : lines(text)) {
    CHECK(line.size() < 1'000);
  }
  const std::vector<std::string> all = lines(text);
  const auto caret = std::ranges::find_if(
      all, [](const std::string& line) { return line.find("^~~~") != std::string::npos; });
  REQUIRE(caret != all.end());
  REQUIRE(caret != all.begin());
  // In characters: accents have two bytes.
  const std::string& above = *std::prev(caret);
  const std::size_t column = caret->find('^');
  std::size_t byte = 0;
  for (std::size_t seen = 0; seen < column; ++byte) {
    seen += (static_cast<unsigned char>(above[byte + 1]) & 0xC0U) != 0x80U ? 1 : 0;
  }
  CHECK(above.substr(byte).starts_with("sede"));
}

TEST_CASE("an included file says who included it", "[config]") {
  const ConfigSandbox box;
  box.write("part.yaml", "lr: 3\n");
  const Loaded loaded = box.load(kSynthetic + "run: {extends: part.yaml}\n");
  const std::string text = render(loaded.diagnostics);
  CHECK(text.find("part.yaml:1:1: error: `lr` is not a key of `run`") != std::string::npos);
  CHECK(text.find("in    included from " + (box.path() / "run.yaml").string() + ":6:16") !=
        std::string::npos);
}

TEST_CASE("preset values name the preset", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(
      "version: 1\nmodel: {type: gpt, preset: gpt2-124m}\n"
      "data: {type: synthetic, seq_length: 2k}\ntrain: {steps: 5, micro_batch_size: 1}\n"
      "optimizer: {type: adamw, lr: 1e-3}\n");
  CHECK(render(loaded.diagnostics)
            .find("with  model.max_seq_length = 1024        (preset gpt2-124m, ") !=
        std::string::npos);
}

TEST_CASE("all errors of a phase come at once, sorted, with a summary", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded =
      box.load(kSynthetic + "logging: {level: loud, every_steps: 0}\nrun: {seed: -1}\nlr: 3\n",
               options({"run.name=a", "run.name=b"}));
  CHECK(summary(loaded) ==
        "bad-enum 6 18; out-of-range 6 37; out-of-range 7 13; unknown-key 8 1; "
        "override-shadowed 1 0");
  const auto text = lines(render(loaded.diagnostics));
  CHECK(text.back() == "4 errors, 1 note");
}

TEST_CASE("at most twenty errors are shown, the rest is counted", "[config]") {
  const ConfigSandbox box;
  std::string text = kSynthetic;
  for (int i = 0; i < 25; ++i) {
    text += "zz" + std::to_string(i) + ": 1\n";
  }
  const Loaded loaded = box.load(text);
  REQUIRE(loaded.diagnostics.size() == 21);
  CHECK(loaded.diagnostics.back().id == "more-errors");
  CHECK(loaded.diagnostics.back().message == "5 more errors are not shown");
  CHECK(lines(render(loaded.diagnostics)).back() == "20 errors, 1 note");
}

TEST_CASE("severities and carets are coloured on request, nothing else changes", "[config]") {
  const ConfigSandbox box;
  const Loaded loaded = box.load(kText + "run: {naem: x}\nvars: {a: 1}\n");
  const std::string plain = render(loaded.diagnostics);
  std::string colored = render(loaded.diagnostics, DiagnosticForm::colored);
  INFO(colored);
  CHECK(colored.find(": \x1b[1;31merror:\x1b[0m `naem` is not a key") != std::string::npos);
  CHECK(colored.find("\x1b[1;31m^~~~\x1b[0m\n") != std::string::npos);
  CHECK(plain.find('\x1b') == std::string::npos);
  for (const char* code : {"\x1b[1;31m", "\x1b[1;33m", "\x1b[1;36m", "\x1b[0m"}) {
    for (std::size_t at = colored.find(code); at != std::string::npos; at = colored.find(code)) {
      colored.erase(at, std::string_view(code).size());
    }
  }
  CHECK(colored == plain);
}

TEST_CASE("a stream gets JSON where asked for, else text", "[config]") {
  CHECK(diagnostic_form(true, 1) == DiagnosticForm::json);
  set_color_mode(ColorMode::always);
  CHECK(diagnostic_form(false, 1) == DiagnosticForm::colored);
  CHECK(diagnostic_form(true, 1) == DiagnosticForm::json);
  set_color_mode(ColorMode::never);
  CHECK(diagnostic_form(false, 1) == DiagnosticForm::text);
  set_color_mode(ColorMode::automatic);
}

}  // namespace colossal::test
