// Is the JSON Schema fresh, and does it agree with the loader about what is legal?
#include "config/flatten.hpp"
#include "config_sandbox.hpp"
#include "schema_check.hpp"
#include "support/catch.hpp"
#include "support/text.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

namespace colossal::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

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
                                          "list-length",
                                          "preset-type"};

}  // namespace

TEST_CASE("the schema file is fresh", "[config]") {
  const fs::path path = fs::path(COLOSSAL_SOURCE_DIR) / "schemas" / "colossal-train.schema.json";
  INFO("run: build/cpu/colossal-train config schema > schemas/colossal-train.schema.json");
  CHECK(read_file(path) == json_schema());
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
  for (const std::string& text : {kSynthetic, kText, kTokens}) {
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
    const std::string text = entry.is_regular_file() ? read_file(entry.path()) : "";
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

TEST_CASE("a tokenizer is needed for text, may be given for token files, and is refused elsewhere",
          "[config]") {
  SchemaCheck schema;
  const ConfigSandbox box;
  const auto with = [](std::string text, const std::string& tokenizer) {
    if (const std::size_t at = text.find("tokenizer:"); at != std::string::npos) {
      text.erase(at, text.find('}', at) + 3 - at);
    }
    return text.insert(text.find("seq_length"), tokenizer);
  };
  const std::string byte = "tokenizer: {type: byte}, ";
  const std::string none = "tokenizer: null, ";
  const std::vector<std::pair<std::string, bool>> rows = {{with(kText, byte), true},
                                                          {with(kText, ""), false},
                                                          {with(kTokens, byte), true},
                                                          {with(kTokens, ""), true},
                                                          {with(kTokens, none), true},
                                                          {with(kTokens, "tokenizer: {}, "), false},
                                                          {with(kSynthetic, byte), false},
                                                          {with(kSynthetic, none), true}};
  for (const auto& [text, good] : rows) {
    INFO(text);
    CHECK(schema.accepts(text) == good);
    CHECK(box.load(text).has_errors() != good);
  }
}

TEST_CASE("a key of another type is refused, null is not", "[config]") {
  SchemaCheck schema;
  CHECK_FALSE(schema.accepts(kText + "scheduler: {min_lr_ratio: 0.1}\n"));
  CHECK(schema.accepts(kText + "scheduler: {min_lr_ratio: null}\n"));
  CHECK_FALSE(schema.accepts(kText + "scheduler: {type: constant, min_lr_ratio: 0.1}\n"));
}

TEST_CASE("a key of another placement is refused, unless the placement may be inherited",
          "[config]") {
  SchemaCheck schema;
  const auto accepts = [&](const std::string& head, const std::string& gemini) {
    return schema.accepts(head + "parallel: {gemini: {" + gemini + "}}\n");
  };
  for (const std::string& head : {kText, std::string("extends: a.yaml\n")}) {
    INFO(head);
    CHECK(accepts(head, "shard_param_frac: 0.5"));
    CHECK(accepts(head, "placement: static, shard_param_frac: 0.5"));
    CHECK(accepts(head, "placement: const, const_budget: 1MiB, shard_param_frac: null"));
    CHECK(accepts(head, "placement: auto, reserve: 0.1, margin_ratio: 1"));
    CHECK(accepts(head, "placement: '${vars.where}', reserve: 0.1, const_budget: 1MiB"));
    CHECK_FALSE(accepts(head, "placement: cuda, reserve: 0.1"));
    CHECK_FALSE(accepts(head, "placement: auto, offload_optim_frac: 0"));
    CHECK_FALSE(accepts(head, "placement: static, const_budget: 1MiB"));
    CHECK_FALSE(accepts(head, "placement: null, const_budget: 1MiB"));
  }
  CHECK_FALSE(accepts(kText, "const_budget: 1MiB"));
  CHECK(accepts("extends: a.yaml\n", "const_budget: 1MiB"));
  // As with `type`, whose default is a word as well.
  CHECK_FALSE(schema.accepts(kText + "scheduler: {power: 2}\n"));
  CHECK(schema.accepts("extends: a.yaml\nscheduler: {power: 2}\n"));
  const Json keys = Json::parse(json_schema());
  const Json& gemini = keys["properties"]["parallel"]["properties"]["gemini"];
  CHECK(gemini["properties"]["const_budget"]["description"] ==
        "bytes of gathered weights on the device (placement const only)");
  CHECK(gemini["allOf"].size() == 3);  // one if/then for each placement that has keys of its own
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
      CHECK(schema.accepts(read_file(entry.path())));
      ++files;
    }
  }
  CHECK(files > 0);
}

TEST_CASE("every configuration in the README is legal, for the loader and the schema", "[config]") {
  const ConfigSandbox box;
  SchemaCheck schema;
  const std::string text = read_file(fs::path(COLOSSAL_SOURCE_DIR) / "README.md");
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

}  // namespace colossal::test
