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
int shell_line(const std::string& line) {
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

TEST_CASE("text that was prepared is trained on as token ids, and generated again", "[dataset]") {
  const Workshop shop;
  run_expecting(0, shop.prepare({"--split-documents", "line", shop.path("a.txt").string()}));
  write_file(shop.path("run.yaml"),
             "version: 1\n"
             "run: {device: cpu, threads: 1}\n"
             "model: {type: gpt, num_layers: 1, hidden_size: 32, num_heads: 2}\n"
             "data: {type: tokens, train: [out.bin], eval: [out.bin], validate: full,\n"
             "       tokenizer: {type: bpe, path: tokenizer.json}, seq_length: 16}\n"
             "train: {steps: 120, global_batch_size: 8, precision: fp64}\n"
             "optimizer: {type: adamw, lr: 1e-2}\n");
  const std::string config = shop.path("run.yaml").string();
  const auto train = [&](const std::string& name, const Arguments& more = {}) {
    Arguments arguments = {"train", config, "--output-dir", shop.path(name).string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  const auto generate = [&](const std::string& name, const Arguments& more = {}) {
    Arguments arguments = {"generate",
                           "--checkpoint",
                           shop.path(name).string(),
                           "--prompt",
                           "the path",
                           "--temperature",
                           "0",
                           "--max-tokens",
                           "12"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  run_expecting(0, {"validate", config});
  const Outcome trained = run_expecting(0, train("run"));
  CHECK(count(trained.err, " generate --checkpoint ") == 1);
  const Json plan = Json::parse(read_file(shop.path("run") / "plan.json"));
  CHECK(plan.at("vocab") == 258);
  const Outcome text = run_expecting(0, generate("run"));
  CHECK(text.out.starts_with("the path of the other"));
  run_expecting(0, train("two", {"--nproc", "2"}));
  require_same_losses(shop.path("run"), shop.path("two"), 1e-4);
  run_expecting(0, {"eval", "--checkpoint", shop.path("run").string()});
  // Weights that left and come back have the vocabulary of the tokenizer, which is not in the file.
  const std::string weights = shop.path("weights.safetensors").string();
  run_expecting(0, {"export", "--checkpoint", shop.path("run").string(), "-o", weights});
  run_expecting(0, {"import", weights, "--model", config, "-o", shop.path("imported").string()});
  CHECK(run_expecting(0, generate("imported")).out == text.out);

  // The same ids with a vocabulary given; generate may be told the tokenizer later.
  run_expecting(0,
                train("plain", {"--set", "data.tokenizer=null", "--set", "model.vocab_size=258"}));
  require_same_losses(shop.path("run"), shop.path("plain"), 0);
  const Outcome untold = run_expecting(3, generate("plain"));
  CHECK(count(untold.err, "[no-tokenizer]") == 1);
  const std::string told =
      "data.tokenizer={type: bpe, path: " + shop.path("tokenizer.json").string() + "}";
  CHECK(run_expecting(0, generate("plain", {"--set", told})).out == text.out);
}

TEST_CASE("a tokenizer that has not made the token files ends every command", "[dataset]") {
  const Workshop shop;
  run_expecting(0, shop.prepare({"--split-documents", "line", shop.path("a.txt").string()}));
  write_file(
      shop.path("run.yaml"),
      "version: 1\n"
      "run: {device: cpu, threads: 1}\n"
      "model: {type: gpt, num_layers: 1, hidden_size: 16, num_heads: 2}\n"
      "data: {type: tokens, train: [out.bin], tokenizer: {type: bpe, path: tokenizer.json},\n"
      "       validate: full, seq_length: 16}\n"
      "train: {steps: 2, micro_batch_size: 2}\n"
      "optimizer: {type: adamw, lr: 1e-3}\n");
  const std::string config = shop.path("run.yaml").string();
  const auto refuse = [&](const std::string& id,
                          const std::string& text,
                          const std::vector<std::string>& sets) {
    for (Arguments arguments :
         {Arguments{"validate", "--data", config},
          Arguments{"plan", config},
          Arguments{"train", config, "--output-dir", shop.path("new").string()},
          Arguments{"train", config, "--nproc", "2", "--output-dir", shop.path("new").string()}}) {
      for (const std::string& set : sets) {
        arguments.insert(arguments.end(), {"--set", set});
      }
      const Outcome outcome = run_expecting(4, arguments);
      const std::string all = outcome.out + outcome.err;
      INFO(arguments.front() << "\n" << all);
      CHECK(count(all, "[" + id + "]") == 1);
      CHECK(count(all, text) >= 1);
      CHECK(records(shop.path("new")).empty());
    }
  };
  const std::string bytes = "data.tokenizer={type: byte}";
  refuse("token-range", "is outside the vocabulary of 256 ids", {bytes, "model.vocab_size=300"});
  refuse("vocab-too-small", "has 258 ids, model.vocab_size is 257", {"model.vocab_size=257"});
  refuse("file-not-found", "none.json", {"data.tokenizer.path=none.json"});

  const Arguments train = {"train", config, "--output-dir", shop.path("run").string()};
  run_expecting(0, train);
  write_tokenizer(shop.path("tokenizer.json"), "h e");  // as many ids, which mean something else
  const Outcome resumed =
      run_expecting(5, joined({train, {"--set", "train.steps=4", "--allow", "data.fingerprint"}}));
  CHECK(count(resumed.err, "[resume-mismatch]") == 1);
  CHECK(count(resumed.err, "data.tokenizer") >= 1);
  const Outcome generated =
      run_expecting(5, {"generate", "--checkpoint", shop.path("run").string(), "--prompt", "the"});
  CHECK(count(generated.err, "[tokenizer-mismatch]") == 1);
  const Outcome without = run_expecting(5,
                                        joined({train,
                                                {"--set",
                                                 "train.steps=4",
                                                 "--set",
                                                 "data.tokenizer=null",
                                                 "--set",
                                                 "model.vocab_size=258"}}));
  CHECK(count(without.err, "[resume-mismatch]") == 1);
}

TEST_CASE("a tokenizer with more ids than the model is not generated with", "[dataset]") {
  const Workshop shop;
  write_file(shop.path("run.yaml"),
             "version: 1\n"
             "run: {device: cpu, threads: 1}\n"
             "model: {type: gpt, num_layers: 1, hidden_size: 16, num_heads: 2, vocab_size: 256}\n"
             "data: {type: tokens, train: [out.bin], seq_length: 16}\n"
             "train: {steps: 2, micro_batch_size: 2}\n"
             "optimizer: {type: adamw, lr: 1e-3}\n");
  run_expecting(0,
                {"dataset",
                 "prepare",
                 "--tokenizer",
                 "byte",
                 shop.path("a.txt").string(),
                 "-o",
                 shop.path("out").string()});
  const std::string run = shop.path("run").string();
  run_expecting(0, {"train", shop.path("run.yaml").string(), "--output-dir", run});
  const std::string larger =
      "data.tokenizer={type: bpe, path: " + shop.path("tokenizer.json").string() + "}";
  const Outcome outcome =
      run_expecting(4, {"generate", "--checkpoint", run, "--prompt", "the", "--set", larger});
  CHECK(count(outcome.err, "[vocab-too-small]") == 1);
  CHECK(count(outcome.err, "258 ids and the model 256") == 1);
  const Outcome untold = run_expecting(3, {"generate", "--checkpoint", run, "--prompt", "the"});
  CHECK(count(untold.err, "--set 'data.tokenizer={type: bpe, path: FILE}'") == 1);
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
  CHECK(shell_line(line) == 0);
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
  CHECK(shell_line(line) == 9);
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
