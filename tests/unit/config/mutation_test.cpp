// Do a thousand kinds of damage to each shipped configuration end in diagnostics, or in a
// configuration that the schema and the rules accept? (config-and-cli 11, T4)
#include "config_sandbox.hpp"
#include "mutator.hpp"
#include "schema_check.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <set>
#include <sstream>

namespace colossal::test {
namespace {

namespace fs = std::filesystem;
#if defined(__SANITIZE_ADDRESS__)
constexpr int kMutations = 150;
#else
constexpr int kMutations = 1000;
#endif

/// What must hold of every configuration that load() lets pass.
void require_valid(const Loaded& loaded, SchemaCheck& schema, const std::string& text) {
  const Config& config = loaded.config;
  INFO(text);
  CHECK(schema.accepts(text));
  CHECK(config.train.global_batch_size ==
        config.parallel.data * config.train.micro_batch_size * config.train.gradient_accumulation);
  const std::string resolved = to_yaml(config);
  INFO(resolved);
  CHECK(schema.accepts(resolved));
  const ConfigSandbox box;
  const Loaded again = box.load(resolved, options({}, config.parallel.data));
  CHECK_FALSE(again.has_errors());
  CHECK(to_yaml(again.config) == resolved);
}

/// The shipped configurations, in the same order everywhere.
std::set<fs::path> shipped(const fs::path& configs) {
  std::set<fs::path> files;
  for (const auto& entry : fs::directory_iterator(configs)) {
    if (entry.path().extension() == ".yaml") {
      files.insert(entry.path());
    }
  }
  return files;
}

/// Damages every second configuration, from the first or the second one on: halves that run side by
/// side.
void mutate_half(std::size_t first) {
  SchemaCheck schema;
  const ConfigSandbox box;
  const fs::path configs = fs::path(COLOSSAL_SOURCE_DIR) / "configs";
  fs::copy(configs, box.path() / "configs", fs::copy_options::recursive);
  std::size_t index = 0;
  for (const fs::path& file : shipped(configs)) {
    if (index++ % 2 != first) {
      continue;
    }
    INFO(file.filename().string());
    const std::string original = read_file(file);
    const fs::path target = box.path() / "configs" / "mutated.yaml";
    Mutator mutate(static_cast<unsigned>(index));
    int valid = 0;
    for (int round = 0; round < kMutations; ++round) {
      const std::string text = mutate(original);
      std::ofstream(target, std::ios::binary) << text;
      const Loaded loaded = load(target, options({}, 2));
      if (loaded.has_errors()) {
        REQUIRE(render(loaded.diagnostics).size() > 20);
        REQUIRE(loaded.diagnostics.size() <= 40);
      } else {
        ++valid;
        require_valid(loaded, schema, text);
      }
    }
    CHECK(valid > kMutations / 100);
    CHECK(valid < kMutations);
  }
  CHECK(index > 5);
}

}  // namespace

TEST_CASE("a thousand mutations of every shipped configuration, first half",
          "[config][mutation-1]") {
  mutate_half(0);
}

TEST_CASE("a thousand mutations of every shipped configuration, second half",
          "[config][mutation-2]") {
  mutate_half(1);
}

}  // namespace colossal::test
