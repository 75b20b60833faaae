// Does `generate` continue prompts with any checkpoint, always the same way, and explain what it
// cannot do?
#include "e2e/program.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <signal.h>
#include <sstream>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

/// A byte model trained for a few steps on text of its own.
class ByteModel {
 public:
  explicit ByteModel(const Arguments& more = {}) {
    write_file(config(), read_file(data_file("text.yaml")));
    std::string text;
    for (int i = 0; i < 300; ++i) {
      text += "in the beginning was the word ";
    }
    write_file(folder_.path() / "train.txt", text);
    Arguments train = {"train", config().string(), "--output-dir", run().string()};
    for (const char* set : {"train.steps=20", "optimizer.lr=1e-2", "checkpoint.every_steps=10"}) {
      train.insert(train.end(), {"--set", set});
    }
    train.insert(train.end(), more.begin(), more.end());
    run_expecting(0, train);
    fs::remove(folder_.path() / "train.txt");  // generation needs no data
    fs::remove(config());
  }

  [[nodiscard]] fs::path config() const { return folder_.path() / "text.yaml"; }
  [[nodiscard]] fs::path run() const { return folder_.path() / "run"; }
  [[nodiscard]] fs::path file(const std::string& name, const std::string& text) const {
    write_file(folder_.path() / name, text);
    return folder_.path() / name;
  }
  [[nodiscard]] Arguments generate(const Arguments& more) const {
    Arguments arguments = {"generate", "--checkpoint", run().string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  [[nodiscard]] std::string text(const Arguments& more) const {
    return run_expecting(0, generate(more)).out;
  }

 private:
  TempDir folder_;
};

std::vector<Json> json_lines(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(Json::parse(line));
  }
  return lines;
}

void require_error(const Arguments& arguments, int code, const std::string& id) {
  const Outcome outcome = run_expecting(code, arguments);
  INFO(outcome.err);
  CHECK(count(outcome.err, "[" + id + "]") == 1);
  CHECK(outcome.out.empty());
}

}  // namespace

TEST_CASE("generation on a device too small for the model ends with exit code 6", "[generate]") {
  const ByteModel trained;
  const Outcome outcome = run_expecting(
      6, trained.generate({"--prompt", "in the", "--set", "run.device_memory=20KiB"}));
  CHECK(count(outcome.err, "[out-of-memory]") == 1);
  CHECK(count(outcome.err, "run.device_memory") >= 1);
  CHECK(count(outcome.err, "frame #") == 0);
  CHECK(trained.text({"--prompt", "in the", "--set", "run.device_memory=64MiB"}) ==
        trained.text({"--prompt", "in the"}));
}

TEST_CASE("generate continues a prompt, the same way every time", "[generate]") {
  const ByteModel trained;
  const std::string prompt = "in the ";
  const Outcome outcome =
      run_expecting(0, trained.generate({"--prompt", prompt, "--max-tokens", "100"}));
  CHECK(outcome.out.starts_with(prompt));
  CHECK(outcome.out.ends_with("\n"));
  CHECK(outcome.out.size() == prompt.size() + 100 + 1);
  CHECK(count(outcome.err, "tokens/s") == 1);
  CHECK(count(outcome.err, "loaded in") == 1);
  CHECK(count(outcome.err, "the model sees at most 64 tokens") == 1);
  CHECK(trained.text({"--prompt", prompt, "--max-tokens", "100"}) == outcome.out);
  CHECK(trained.text({"--prompt", prompt, "--max-tokens", "100", "--seed", "1"}) != outcome.out);
  const Outcome quiet = run_expecting(0, trained.generate({"--prompt", prompt, "-q"}));
  CHECK(quiet.err.empty());
}

TEST_CASE("generate at temperature 0 ignores the seed", "[generate]") {
  const ByteModel trained;
  const Arguments greedy = {"--prompt", "the ", "--temperature", "0", "--max-tokens", "30"};
  Arguments seeded = greedy;
  seeded.insert(seeded.end(), {"--seed", "5", "--top-k", "3", "--top-p", "0.5"});
  CHECK(trained.text(greedy) == trained.text(seeded));
  Arguments penalised = greedy;
  penalised.insert(penalised.end(), {"--repetition-penalty", "50"});
  CHECK(trained.text(greedy) != trained.text(penalised));
}

TEST_CASE("generate takes one checkpoint, a run, and overrides", "[generate]") {
  const ByteModel trained;
  const Arguments prompt = {"--prompt", "the ", "--temperature", "0", "--max-tokens", "20"};
  const auto with = [&](const fs::path& checkpoint, const Arguments& more = {}) {
    Arguments arguments = {"generate", "--checkpoint", checkpoint.string()};
    arguments.insert(arguments.end(), prompt.begin(), prompt.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_expecting(0, arguments);
  };
  const fs::path checkpoints = trained.run() / "checkpoints";
  const Outcome newest = with(trained.run());
  CHECK(count(newest.err, "step 20 of") == 1);
  CHECK(with(checkpoints / "step-00000020").out == newest.out);
  CHECK(count(with(checkpoints / "step-00000010").err, "step 10 of") == 1);
  with(trained.run(), {"--set", "train.precision=fp64", "--set", "run.threads=2"});
}

TEST_CASE("generate gives the same text for checkpoints of one and two processes", "[generate]") {
  const Arguments fp64 = {"--set", "train.precision=fp64"};
  Arguments two = fp64;
  two.insert(two.end(), {"--nproc", "2"});
  const ByteModel one_process(fp64);
  const ByteModel two_processes(two);
  const Arguments prompt = {"--prompt", "beginning", "--temperature", "0"};
  CHECK(one_process.text(prompt) == two_processes.text(prompt));
}

TEST_CASE("generate continues lines of stdin, each as if it were alone", "[generate]") {
  const ByteModel trained;
  std::string lines;
  for (int i = 0; i < 40; ++i) {  // more than run at once
    lines +=
        std::string(static_cast<std::size_t>(i % 7) + 1, static_cast<char>('a' + i % 26)) + "\n";
  }
  Setting input;
  input.input = trained.file("prompts", lines).string();
  const Arguments json = trained.generate(
      {"--prompt", "-", "--format", "json", "--max-tokens", "70", "--temperature", "0"});
  const std::vector<Json> results = json_lines(run_expecting(0, json, input).out);
  REQUIRE(results.size() == 40);
  std::istringstream expected(lines);
  for (const Json& result : results) {
    std::string line;
    std::getline(expected, line);
    CHECK(result.at("prompt") == line);
    CHECK(result.at("tokens") == result.at("ids").size());
    CHECK((result.at("finish") == "length" || result.at("finish") == "end"));
    CHECK((result.at("finish") == "end" || result.at("tokens") == 70));
  }
  for (const std::size_t i : {0U, 16U, 39U}) {
    const std::string prompt = results[i].at("prompt");
    Arguments alone = trained.generate(
        {"--format", "json", "--max-tokens", "70", "--temperature", "0", "--prompt", prompt});
    CHECK(json_lines(run_expecting(0, alone).out).at(0) == results[i]);
  }
  const std::string text =
      run_expecting(0, trained.generate({"--prompt", "-", "--max-tokens", "1"}), input).out;
  CHECK(text.starts_with("a"));
  CHECK(count(text, "\n") >= 40);
}

TEST_CASE("generate ends quietly when its reader has enough, also where SIGPIPE is ignored",
          "[generate]") {
  const ByteModel trained;
  const std::string err = trained.file("err", "").string();
  const std::string code = trained.file("code", "").string();
  const std::string command = std::string(COLOSSAL_BINARY) + " generate -q --checkpoint " +
                              trained.run().string() +
                              " --prompt 'in the' --max-tokens 9223372036854775807";
  // NOLINTNEXTLINE(concurrency-mt-unsafe): one thread
  CHECK(std::system(("trap '' PIPE; { timeout 60 " + command + " 2>" + err + "; echo $? >" + code +
                     "; } | head -c 1 >/dev/null")
                        .c_str()) == 0);
  CHECK(read_file(code) == "0\n");
  CHECK(read_file(err).empty());
}

TEST_CASE("as many tokens as can be counted are more than the model sees", "[generate]") {
  const ByteModel trained;
  Program program(trained.generate({"--prompt", "in the", "--max-tokens", "9223372036854775807"}));
  program.await_stderr("the model sees at most 64 tokens");
  program.send(SIGKILL);
  program.wait();
}

TEST_CASE("generate refuses what it cannot do", "[generate]") {
  const ByteModel trained;
  const auto refuse = [&](const Arguments& more, int code, const std::string& id) {
    require_error(trained.generate(more), code, id);
  };
  refuse({"--prompt", ""}, 4, "empty-prompt");
  refuse({"--prompt", "-"}, 4, "empty-prompt");  // stdin is empty
  refuse({"--prompt", std::string(65, 'a')}, 4, "prompt-too-long");
  refuse({"--prompt", "a", "--temperature", "-1"}, 2, "out-of-range");
  refuse({"--prompt", "a", "--top-k", "-1"}, 2, "out-of-range");
  refuse({"--prompt", "a", "--top-p", "0"}, 2, "out-of-range");
  refuse({"--prompt", "a", "--repetition-penalty", "0"}, 2, "out-of-range");
  refuse({"--prompt", "a", "--max-tokens", "0"}, 2, "out-of-range");
  refuse({"--prompt", "a", "--max-tokens", "many"}, 2, "usage");
  refuse({"--prompt", "a", "--seed", "-1"}, 2, "out-of-range");
  refuse({}, 2, "missing-argument");
  refuse({"--prompt", "a", "--temprature", "1"}, 2, "unknown-option");
  refuse({"--prompt", "a", "--set", "model.hidden=3"}, 3, "unknown-key");
  refuse({"--prompt", "a", "--set", "model.hidden_size=48"}, 5, "checkpoint-shape");
  require_error({"generate", "--prompt", "a"}, 2, "missing-argument");
  require_error({"generate", "--checkpoint", (trained.run() / "none").string(), "--prompt", "a"},
                5,
                "checkpoint-none");
}

TEST_CASE("generate needs a tokenizer", "[generate]") {
  const TempDir folder;
  run_expecting(0, train_tiny(folder.path()));  // synthetic ids
  const Arguments generate = {"generate", "--checkpoint", folder.path().string(), "--prompt", "a"};
  require_error(generate, 3, "no-tokenizer");
  CHECK(count(run_expecting(3, generate).err, "trained on data.type text, or on tokens") == 1);
  require_error(joined({generate, {"--set", "data.tokenizer={type: byte}"}}), 3, "unused-section");
}

TEST_CASE("generate finds damaged weights", "[generate]") {
  const ByteModel trained;
  flip_bytes(trained.run() / "checkpoints" / "step-00000020" / "rank-0000.h5");
  const Outcome outcome = run_expecting(5, trained.generate({"--prompt", "a"}));
  CHECK(outcome.out.empty());
  CHECK(count(outcome.err, "rank-0000.h5") == 1);
}

TEST_CASE("the end of a run says how to try a model of text, and only of text", "[generate]") {
  const TempDir folder;
  const Outcome ids = run_expecting(0, train_tiny(folder.path() / "ids"));
  CHECK(count(ids.err, " generate --checkpoint ") == 0);
  write_file(folder.path() / "text.yaml", read_file(data_file("text.yaml")));
  write_file(folder.path() / "train.txt", std::string(1000, 'a'));
  const std::string run = (folder.path() / "run").string();
  const Outcome text =
      run_expecting(0, {"train", (folder.path() / "text.yaml").string(), "--output-dir", run});
  CHECK(count(text.err, "try       ") == 1);
  CHECK(count(text.err, " generate --checkpoint " + run + " --prompt ") == 1);
}

TEST_CASE("the script of the quick start ends with a text by the model", "[generate]") {
  const TempDir folder;
  const fs::path root = folder.path() / "checkout";
  for (const char* script : {"scripts/train.sh", "scripts/setup.sh", "scripts/wait.sh"}) {
    fs::create_directories((root / script).parent_path());
    fs::copy_file(fs::path(COLOSSAL_SOURCE_DIR) / script, root / script);
  }
  std::ofstream(root / "scripts/setup.sh", std::ios::app)
      << "setup_build() { :; }\nconfigure() { :; }\nbuild() { :; }\n";
  fs::create_directories(root / "build/cpu");
  fs::create_symlink(COLOSSAL_BINARY, root / "build/cpu/colossal-train");
  write_file(folder.path() / "a.yaml", "# sample: aaa\n" + read_file(data_file("text.yaml")));
  write_file(folder.path() / "train.txt", std::string(1000, 'a'));
  const auto file = [&](const char* name) { return (folder.path() / name).string(); };
  const std::string command = (root / "scripts/train.sh").string() + " " + file("a.yaml") +
                              " --output-dir " + file("run") + " >" + file("out") + " 2>" +
                              file("err");
  std::string first;
  for (const char* ending : {"finished", "nothing to do"}) {
    const int status = std::system(command.c_str());  // NOLINT(concurrency-mt-unsafe): one thread
    const std::string err = read_file(file("err"));
    INFO(err);
    REQUIRE(status == 0);
    CHECK(Json::parse(read_file(file("out"))).at("reason") == ending);
    const std::size_t sample = err.find("\nsample ");
    REQUIRE(sample != std::string::npos);
    const std::size_t text = err.find("\n\naaa", sample);
    REQUIRE(text != std::string::npos);
    CHECK(err.size() > text + 10);
    CHECK((first.empty() || err.substr(text) == first));  // by the same weights
    first = err.substr(text);
  }
}
