// Do keys of one placement of gemini follow the rules of keys of one `type`?
#include "config_sandbox.hpp"
#include "support/catch.hpp"

#include <string>

namespace colossal::test {

TEST_CASE("another placement drops the inherited keys of the old one, with a note", "[config]") {
  const ConfigSandbox box;
  box.write("base.yaml",
            kSynthetic +
                "parallel:\n  gemini: {placement: static, offload_optim_frac: 0.5, "
                "chunk_size: 64KiB}\n");
  const std::string child = "extends: base.yaml\n";
  const auto check_dropped = [](const Loaded& loaded, Placement placement) {
    INFO(render(loaded.diagnostics));
    REQUIRE(summary(loaded) == "dropped-by-type 7 31");
    CHECK(loaded.diagnostics[0].message ==
          "parallel.gemini.offload_optim_frac belongs to parallel.gemini.placement static; it is "
          "dropped with placement " +
              yaml_word(placement));
    const GeminiConfig gemini = loaded.config.parallel.gemini.value_or(GeminiConfig{});
    CHECK(gemini.placement == placement);
    CHECK(gemini.offload_optim_frac == 0);
    CHECK(gemini.chunk_size == 64 << 10);  // known to every placement
  };
  const std::string text = child + "parallel: {gemini: {placement: const, const_budget: 1MiB}}\n";
  check_dropped(box.load(text), Placement::constant);
  LoadOptions with;
  with.overlays = {box.write("over.yaml", "parallel: {gemini: {placement: cuda}}\n").string()};
  check_dropped(box.load(child, with), Placement::cuda);
  check_dropped(box.load(child, options({"parallel.gemini.placement=cpu"})), Placement::cpu);
  check_dropped(box.load(child,
                         options({"parallel.gemini.reserve=0.1",
                                  "parallel.gemini.placement=auto",
                                  "run.device_memory=1GiB"})),
                Placement::automatic);
}

TEST_CASE("a key beside the wrong placement of its layer is an error", "[config]") {
  const ConfigSandbox box;
  box.write("base.yaml", kSynthetic + "parallel: {gemini: {placement: const}}\n");
  const std::string gemini = "extends: base.yaml\nparallel: {gemini: {";
  const Loaded wrong = box.load(gemini + "placement: cuda, const_budget: 1MiB}}\n");
  REQUIRE(summary(wrong) == "unused-section 2 38");
  CHECK(wrong.diagnostics[0].fix == "remove it, or set placement: const");
  CHECK(summary(box.load(gemini + "const_budget: 1MiB}}\n")).empty());
  CHECK(summary(box.load(gemini + "placement: cuda, const_budget: null}}\n")).empty());
  // Nothing hides: a default that is written counts, and so does a placement that is undone.
  CHECK(summary(box.load(gemini + "shard_param_frac: 1}}\n")) == "unused-section 2 21");
  CHECK(summary(box.load(gemini + "placement: null, const_budget: 1MiB}}\n")) ==
        "unused-section 2 38");
  CHECK(summary(box.load("extends: base.yaml\n",
                         options({"parallel.gemini.placement=auto",
                                  "parallel.gemini.const_budget=1MiB",
                                  "run.device_memory=1GiB"}))) == "unused-section 2 0");
  // A word that is none says so, and nothing about its neighbours.
  CHECK(summary(box.load(gemini + "placement: disk, const_budget: 1MiB}}\n")) == "bad-enum 2 32");
}

}  // namespace colossal::test
