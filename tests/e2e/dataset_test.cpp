// Can a user prepare, check and train on token files, and does every wrong step end in one clear
// error?
#include "e2e/program.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <sys/wait.h>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

/// A tokenizer.json of bytes and one merge, "th".
void write_tokenizer(const fs::path& file, const std::string& merge = "t h") {
  Json vocabulary;
  for (int byte = 0, other = 256; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int code = itself ? byte : other++;
    std::string text(1, static_cast<char>(code));
    if (code >= 128) {
      text = {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
    }
    vocabulary[text] = byte;
  }
  std::string joined = merge;
  joined.erase(joined.find(' '), 1);
  vocabulary[joined] = 256;
  const Json json = {{"added_tokens", {{{"id", 257}, {"content", "<|endoftext|>"}}}},
                     {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                     {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {merge}}}}};
  write_file(file, json.dump());
}

/// Texts and a tokenizer in a folder of their own.
class Workshop {
 public:
  Workshop() {
    std::string text;
    for (int i = 0; i < 400; ++i) {
      text += "the path of the other " + std::to_string(i % 7) + "\n";
    }
    write_file(path("a.txt"), text);
    write_file(path("b.txt"), "then they\n\nwith that\n");
    write_tokenizer(path("tokenizer.json"));
  }
  [[nodiscard]] fs::path path(const std::string& name) const { return folder_.path() / name; }
  [[nodiscard]] std::string tokenizer() const { return "bpe:" + path("tokenizer.json").string(); }
  [[nodiscard]] Arguments prepare(const Arguments& more) const {
    Arguments arguments = {
        "dataset", "prepare", "--tokenizer", tokenizer(), "-o", path("out").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  /// Files whose name begins with "out".
  [[nodiscard]] int num_outputs() const {
    int found = 0;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      found += entry.path().filename().string().starts_with("out") ? 1 : 0;
    }
    return found;
  }

 private:
  TempDir folder_;
};

/// Runs a line of shell; returns its exit code.
int shell(const std::string& line) {
  const int status = std::system(line.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("prepared files are inspected and decoded", "[dataset]") {
  const Workshop shop;
  const Outcome made = run_expecting(
      0, shop.prepare({"--split-documents", "blank-line", shop.path("b.txt").string()}));
  CHECK(count(made.out, "out.bin: 2 documents") == 1);
  CHECK(shop.num_outputs() == 2);
  const Outcome seen = run_expecting(0,
                                     {"dataset",
                                      "inspect",
                                      shop.path("out.bin").string(),
                                      "--tokenizer",
                                      shop.tokenizer(),
                                      "--format",
                                      "json"});
  const Json json = last_line(seen);
  CHECK(json.at("documents") == 2);
  CHECK(json.at("sample") == "then they<|endoftext|>with that<|endoftext|>");
  CHECK(json.at("largest_id") == 257);
}

TEST_CASE("a text run takes its vocabulary from the tokenizer and refuses another", "[dataset]") {
  const Workshop shop;
  write_file(shop.path("run.yaml"),
             "version: 1\n"
             "model: {type: gpt, num_layers: 1, hidden_size: 16, num_heads: 2}\n"
             "data: {type: text, train: [a.txt], tokenizer: {type: bpe, path: tokenizer.json},\n"
             "       seq_length: 16}\n"
             "train: {steps: 2, micro_batch_size: 2}\n"
             "optimizer: {type: adamw, lr: 1e-3}\n");
  const std::string config = shop.path("run.yaml").string();
  const Arguments train = {"train", config, "--output-dir", shop.path("run").string()};
  run_expecting(0, {"validate", config});
  run_expecting(0, train);
  const std::string plan = read_file(shop.path("run") / "plan.json");
  CHECK(Json::parse(plan).at("vocab") == 258);
  write_tokenizer(shop.path("tokenizer.json"), "h e");
  Arguments more = train;
  more.insert(more.end(), {"--set", "train.steps=4", "--allow", "data.fingerprint"});
  const Outcome other = run_expecting(5, more);
  CHECK(count(other.err, "[resume-mismatch]") == 1);
  CHECK(count(other.err, "data.tokenizer") >= 1);
  fs::remove(shop.path("tokenizer.json"));
  for (const char* processes : {"1", "2"}) {
    const Outcome missing = run_expecting(
        4, {"train", config, "--output-dir", shop.path("new").string(), "--nproc", processes});
    CHECK(count(missing.err, "[file-not-found]") == 1);
    CHECK_FALSE(fs::exists(shop.path("new")));
  }
  run_expecting(0, {"validate", config});  // reads no data
  run_expecting(4, {"validate", "--data", config});
}

TEST_CASE("a data file that is not there is looked for under the nearest name", "[dataset]") {
  const TempDir folder;
  const std::string text = (folder.path() / "words.txt").string();
  write_file(text, "some words\n");
  const std::string near = "did you mean '" + text + "'?";
  const std::string wrong = (folder.path() / "wrods.txt").string();
  const std::string out = (folder.path() / "out").string();
  const Outcome prepared =
      run_expecting(4, {"dataset", "prepare", "--tokenizer", "byte", wrong, "-o", out});
  CHECK(count(prepared.err, near) == 1);
  const std::string tokens = (folder.path() / "tokens.bin").string();
  write_file(tokens, "ids");
  for (const char* name : {"tokesn.bin", "tokesn"}) {
    const Outcome inspected =
        run_expecting(4, {"dataset", "inspect", (folder.path() / name).string()});
    CHECK(count(inspected.err, "did you mean '" + tokens + "'?") == 1);
  }
  const Outcome far = run_expecting(4, {"dataset", "inspect", (folder.path() / "q.bin").string()});
  CHECK(count(far.err, "check the name") == 1);
  const fs::path config = folder.path() / "run.yaml";
  std::string run = read_file(data_file("text.yaml"));
  run.replace(run.find("train.txt"), 9, "wrods.txt");
  write_file(config, run);
  CHECK(count(run_expecting(4, {"validate", "--data", config.string()}).err, near) == 1);
}

TEST_CASE("standard input is an input", "[dataset]") {
  const Workshop shop;
  const std::string line = fmt::format(
      "printf 'the\\nother\\n' | {} dataset prepare --tokenizer byte "
      "--split-documents line - -o {} >{}",
      COLOSSAL_BINARY,
      shop.path("out").string(),
      shop.path("report").string());
  CHECK(shell(line) == 0);
  CHECK(count(read_file(shop.path("report")), "2 documents, 10 tokens") == 1);
}

TEST_CASE("a full disk leaves no file behind", "[dataset]") {
  const Workshop shop;
  write_file(shop.path("large.txt"), std::string(3'000'000, 'a'));
  const std::string line = fmt::format(
      "trap '' XFSZ; ulimit -f 1000; exec {} dataset prepare --tokenizer byte {} -o {} >{} 2>&1",
      COLOSSAL_BINARY,
      shop.path("large.txt").string(),
      shop.path("out").string(),
      shop.path("report").string());
  CHECK(shell(line) == 9);
  CHECK(count(read_file(shop.path("report")), "[output-write]") == 1);
  CHECK(shop.num_outputs() == 0);
}

TEST_CASE("wrong commands and inputs end with their exit codes", "[dataset]") {
  const Workshop shop;
  const auto fails = [](int code, const Arguments& arguments, const std::string& id) {
    const Outcome outcome = run_expecting(code, arguments);
    INFO(outcome.err);
    CHECK(count(outcome.err, "[" + id + "]") == 1);
    CHECK(outcome.out.empty());
  };
  fails(4, shop.prepare({"missing.txt"}), "file-not-found");
  fails(4, shop.prepare({shop.path(".").string()}), "data-unreadable");
  fails(2, shop.prepare({}), "missing-argument");
  fails(2, {"dataset", "prepare", "--tokenizer", "gpt2", "x", "-o", "y"}, "bad-tokenizer");
  fails(2, {"dataset"}, "missing-argument");
  fails(2, {"dataset", "inspekt"}, "unknown-command");
  CHECK(shop.num_outputs() == 0);
  run_expecting(0, shop.prepare({shop.path("a.txt").string()}));
  fs::resize_file(shop.path("out.bin"), fs::file_size(shop.path("out.bin")) - 1);
  fails(4, {"dataset", "inspect", shop.path("out.bin").string()}, "token-file");
}

TEST_CASE("the folder of the output is made", "[dataset]") {
  const Workshop shop;
  const std::string output = shop.path("new/folder/ids").string();
  run_expecting(
      0, {"dataset", "prepare", "--tokenizer", "byte", shop.path("a.txt").string(), "-o", output});
  run_expecting(0, {"dataset", "inspect", output + ".bin"});
}
