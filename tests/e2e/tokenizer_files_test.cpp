// Does a wrong tokenizer file end every command that reads it with one clear error, before anything
// is trained or written?
#include "e2e/program.hpp"

#include <functional>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

/// A text run with a real tokenizer.json in a folder of its own.
class TokenizerCase {
 public:
  TokenizerCase() {
    write_file(config(),
               "version: 1\n"
               "run: {name: text, device: cpu, threads: 1}\n"
               "model: {type: gpt, num_layers: 1, hidden_size: 32, num_heads: 2}\n"
               "data:\n"
               "  type: text\n"
               "  train: [train.txt]\n"
               "  tokenizer: {type: bpe, path: tokenizer.json}\n"
               "  seq_length: 16\n"
               "train: {steps: 2, global_batch_size: 2, precision: fp32}\n"
               "optimizer: {type: adamw, lr: 1e-3}\n");
    std::string text;
    for (int i = 0; i < 200; ++i) {
      text += "In the beginning was the word " + std::to_string(i) + ".\n";
    }
    write_file(path("train.txt"), text);
    write_file(tokenizer(), good());
  }
  [[nodiscard]] static std::string good() {
    return read_file(data_file("../golden/fixtures/tokenizers/llama3.json"));
  }
  [[nodiscard]] fs::path path(const std::string& name) const { return folder_.path() / name; }
  [[nodiscard]] fs::path config() const { return path("text.yaml"); }
  [[nodiscard]] fs::path tokenizer() const { return path("tokenizer.json"); }
  [[nodiscard]] Arguments train(const Arguments& more = {}) const {
    Arguments arguments = {"train", config().string(), "--output-dir", path("run").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  /// What reads the configuration and its data.
  [[nodiscard]] std::vector<Arguments> readers() const {
    return {train(),
            train({"--nproc", "2"}),
            {"validate", "--data", config().string()},
            {"plan", config().string()}};
  }
  [[nodiscard]] Arguments prepare() const {
    return {"dataset",
            "prepare",
            "--tokenizer",
            "bpe:" + tokenizer().string(),
            path("train.txt").string(),
            "-o",
            path("out").string()};
  }

  /// Fails the test unless these commands end with exit code 4, `id` once, the tokenizer's file
  /// named, and nothing begun: at most the output folder is there, empty.
  void require_refused(const std::vector<Arguments>& commands, const std::string& id) const {
    for (const Arguments& arguments : commands) {
      const Outcome outcome = run_expecting(4, arguments);
      const std::string all = outcome.out + outcome.err;
      INFO(arguments.front() << "\n" << all);
      CHECK(count(all, "[" + id + "]") == 1);
      CHECK(count(all, tokenizer().string()) >= 1);
      CHECK(count(all, "launch:") == 0);
      CHECK((!fs::exists(path("run")) || fs::is_empty(path("run"))));
      CHECK_FALSE(fs::exists(path("out.bin")));
    }
  }

 private:
  TempDir folder_;
};

/// The real file after a change.
std::string changed(const std::function<void(Json&)>& change) {
  Json json = Json::parse(TokenizerCase::good());
  change(json);
  return json.dump();
}

}  // namespace

TEST_CASE("the tokenizer of these tests is a good one", "[tokenizer]") {
  const TokenizerCase good;
  for (const Arguments& arguments : good.readers()) {
    run_expecting(0, arguments);
  }
  run_expecting(0, good.prepare());
}

TEST_CASE("a tokenizer file that is none is refused by every command", "[tokenizer]") {
  const TokenizerCase wrong;
  const std::string good = TokenizerCase::good();
  const std::vector<std::string> texts = {
      "", "{", "[1]", good.substr(0, good.size() / 2), changed([](Json& json) {
        json.at("model").at("merges").push_back("never seen");
      })};
  std::vector<Arguments> commands = wrong.readers();
  commands.push_back(wrong.prepare());
  for (const std::string& text : texts) {
    INFO(text.substr(0, 100));
    write_file(wrong.tokenizer(), text);
    wrong.require_refused(commands, "tokenizer-file");
  }
}

TEST_CASE("a tokenizer of another kind is refused by name", "[tokenizer]") {
  const TokenizerCase wrong;
  write_file(wrong.tokenizer(),
             changed([](Json& json) { json.at("model").at("type") = "Unigram"; }));
  std::vector<Arguments> commands = wrong.readers();
  commands.push_back(wrong.prepare());
  wrong.require_refused(commands, "tokenizer-unsupported");
  CHECK(count(run_expecting(4, wrong.prepare()).err, "'Unigram' is not supported") == 1);
}

TEST_CASE("a vocabulary smaller than the tokenizer's is refused before the first step",
          "[tokenizer]") {
  const TokenizerCase small;
  std::vector<Arguments> commands = small.readers();
  for (Arguments& arguments : commands) {
    arguments.insert(arguments.end(), {"--set", "model.vocab_size=100"});
  }
  small.require_refused(commands, "vocab-too-small");
}
