// Is the JSON Schema fresh, and does it agree with the loader about what is legal?
#include "config/flatten.hpp"
#include "config_sandbox.hpp"
#include "schema_check.hpp"
#include "support/catch.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

using namespace colossal;
using namespace colossal::test;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string read(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

/// Ids that say something about one key of one file, which a schema can say too.
const std::set<std::string> kSchemaIds = {"unknown-key",
                                          "required",
                                          "one-of",
                                          "wrong-type",
                                          "bad-int",
                                          "bad-real",
                                          "bad-bool",
                                          "bad-duration",
                                          "bad-string",
                                          "bad-enum",
                                          "quoted-number",
                                          "out-of-range",
                                          "list-length"};

}  // namespace

TEST_CASE("the schema file is fresh", "[config]") {
  const fs::path path = fs::path(COLOSSAL_SOURCE_DIR) / "schemas" / "colossal-train.schema.json";
  INFO("run: build/cpu/colossal-train config schema > schemas/colossal-train.schema.json");
  CHECK(read(path) == json_schema());
}

TEST_CASE("the schema describes every key", "[config]") {
  const Json schema = Json::parse(json_schema());
  CHECK(schema["$schema"] == "http://json-schema.org/draft-07/schema#");
  CHECK(schema["additionalProperties"] == false);
  for (const std::string& path : detail::all_paths()) {
    const Json* at = &schema;
    std::istringstream parts(path);
    for (std::string part; std::getline(parts, part, '.');) {
      INFO(path);
      if (at->contains("anyOf") && !at->contains("properties")) {
        at = &(*at)["anyOf"][1];  // or one value for the mapping
      }
      REQUIRE(at->contains("properties"));
      REQUIRE((*at)["properties"].contains(part));
      at = &(*at)["properties"][part];
    }
    CHECK_FALSE((*at)["description"].get<std::string>().empty());
  }
  CHECK(schema["properties"]["optimizer"]["properties"]["no_decay"]["default"] ==
        Json({"*.bias", "*norm*"}));
  CHECK(schema["properties"]["run"]["properties"]["seed"]["default"] == 1234);
}

TEST_CASE("the schema accepts good files and what is written back", "[config]") {
  const ConfigSandbox box;
  SchemaCheck schema;
  for (const std::string& text :
       {kSynthetic,
        kText,
        std::string("extends: a.yaml\n"),
        kText + "scheduler: {type: cosine, warmup_steps: 1k, min_lr_ratio: 0.1}\n",
        kText + "parallel: {data: auto, comm: {timeout: 5m}}\n",
        kText + "logging:\nrun: {name: 12, seed: 1_000}\n",
        kText + "vars: {a: 1, b: x}\nrun: {seed: \"${vars.a}\", name: \"${vars.b}\"}\n",
        kText + "scheduler: {type: \"${env:X}\", min_lr_ratio: \"${vars.a}\"}\n",
        kText + "eval: {at_end: \"${vars.a}\"}\nparallel: {comm: {timeout: \"${vars.a}m\"}}\n",
        std::string("version: 1\nmodel: {type: gpt, preset: gpt2-124m}\n"
                    "data: {type: synthetic, seq_length: 1k, num_samples: 2.5M}\n"
                    "train: {tokens: 300B, micro_batch_size: 1}\n"
                    "optimizer: {type: adamw, lr: 1e-3, groups: [{match: '*'}]}\n")}) {
    INFO(text);
    CHECK(schema.accepts(text));
  }
  for (const std::string& text : {kSynthetic, kText}) {
    for (const std::int64_t world : {0, 2}) {
      const Config config = box.load(text, options({}, world)).config;
      CHECK(schema.accepts(to_yaml(config)));
      CHECK(schema.accepts(to_minimal_yaml(config)));
    }
  }
}

TEST_CASE("what the schema can express, it refuses as the loader does", "[config]") {
  SchemaCheck schema;
  int refused = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(COLOSSAL_TEST_DATA) / "bad")) {
    const std::string text = entry.is_regular_file() ? read(entry.path()) : "";
    std::istringstream first(text);
    std::string word;
    std::string id;
    first >> word >> word >> id;
    const bool beyond = text.find("# beyond-schema") != std::string::npos;
    if (kSchemaIds.count(id) == 0 && id != "unused-section") {
      continue;
    }
    INFO(entry.path().filename().string());
    CHECK(schema.accepts(text) == beyond);
    refused += beyond ? 0 : 1;
  }
  CHECK(refused > 40);
}

TEST_CASE("variables are single values with plain names", "[config]") {
  SchemaCheck schema;
  CHECK(schema.accepts(kText + "vars:\n"));
  CHECK_FALSE(schema.accepts(kText + "vars: {a: [1]}\n"));
  CHECK_FALSE(schema.accepts(kText + "vars: {a-b: 1}\n"));
  CHECK_FALSE(schema.accepts(kText + "vars: 3\n"));
  CHECK_FALSE(schema.accepts(kText + "run: {seed: vars.a}\n"));
}

TEST_CASE("a key of another type is refused, null is not", "[config]") {
  SchemaCheck schema;
  CHECK_FALSE(schema.accepts(kText + "scheduler: {min_lr_ratio: 0.1}\n"));
  CHECK(schema.accepts(kText + "scheduler: {min_lr_ratio: null}\n"));
  CHECK_FALSE(schema.accepts(kText + "scheduler: {type: constant, min_lr_ratio: 0.1}\n"));
}

TEST_CASE("every shipped configuration is legal, for the loader and the schema", "[config]") {
  SchemaCheck schema;
  int files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(COLOSSAL_SOURCE_DIR) / "configs")) {
    if (entry.path().extension() == ".yaml") {
      const Loaded loaded = load(entry.path(), options({}, 2));
      INFO(entry.path().filename().string() << "\n" << render(loaded.diagnostics));
      for (const Diagnostic& item : loaded.diagnostics) {
        CHECK((item.severity == Diagnostic::Severity::note || item.id == "fp16-slow"));
      }
      CHECK(schema.accepts(read(entry.path())));
      ++files;
    }
  }
  CHECK(files > 0);
}

TEST_CASE("every configuration in the README is legal, for the loader and the schema", "[config]") {
  const ConfigSandbox box;
  SchemaCheck schema;
  const std::string text = read(fs::path(COLOSSAL_SOURCE_DIR) / "README.md");
  const std::string open = "```yaml\n";
  int snippets = 0;
  for (std::size_t at = text.find(open); at != std::string::npos; at = text.find(open, at)) {
    at += open.size();
    const std::string snippet = text.substr(at, text.find("```", at) - at);
    INFO(snippet);
    CHECK(summary(box.load(snippet, options({}, 2))).empty());
    CHECK(schema.accepts(snippet));
    ++snippets;
  }
  CHECK(snippets > 0);
}
