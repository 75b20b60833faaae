// Are the rules that need data found by every command, once, before a rank exists?
#include "e2e/program.hpp"

#include <fmt/format.h>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

/// A configuration on 1000 bytes of text: 15 samples.
class Case {
 public:
  explicit Case(const std::string& sections) {
    write_file(config(),
               "version: 1\n"
               "run: {name: text, device: cpu, threads: 1}\n"
               "model: {type: gpt, num_layers: 1, hidden_size: 32, num_heads: 2}\n"
               "data: {type: text, train: [train.txt], tokenizer: {type: byte}, seq_length: 64}\n" +
                   sections);
    write_file(folder_.path() / "train.txt", std::string(1000, 'a'));
  }
  [[nodiscard]] fs::path config() const { return folder_.path() / "text.yaml"; }
  [[nodiscard]] fs::path run_dir() const { return folder_.path() / "run"; }

  /// Fails the test unless every command ends with `code` and has `place`: error ... [`id`] once.
  void require_error(int code, const std::string& id, const std::string& place) const {
    const std::string file = config().string();
    const Arguments train = {"train", file, "--output-dir", run_dir().string()};
    Arguments launched = train;
    launched.insert(launched.end(), {"--nproc", "2"});
    for (const Arguments& arguments :
         {Arguments{"validate", "--data", file}, Arguments{"plan", file}, train, launched}) {
      const Outcome outcome = run_expecting(code, arguments);
      const std::string all = outcome.out + outcome.err;
      INFO(arguments.front() << "\n" << all);
      CHECK(count(all, "[" + id + "]") == 1);
      CHECK(count(all, place + ": error: ") == 1);
      CHECK(count(all, "1 error\n") == 1);
      CHECK(count(all, "launch:") == 0);
      CHECK(count(all, "[rank") == 0);
      CHECK_FALSE(fs::exists(run_dir() / "run.lock"));
    }
  }

 private:
  TempDir folder_;
};

/// Where byte `at` of a file's text stands: "FILE:LINE:COL".
std::string place_in(const fs::path& file, const std::string& text, std::size_t at) {
  const std::size_t line = text.rfind('\n', at) + 1;
  const int number = count(text.substr(0, at), "\n") + 1;
  return fmt::format("{}:{}:{}", file.string(), number, at - line + 1);
}

}  // namespace

TEST_CASE("what only this machine can tell is told at the key, by one rank and by two",
          "[data_check]") {
  const TempDir folder;
  write_file(folder.path() / "file", "");
  const std::string file = (folder.path() / "file").string();
  const std::string old = (folder.path() / "old").string();
  run_expecting(0, train_tiny(old, {"--set", "train.steps=9"}));
  struct Row {
    const char* id;
    int code;
    std::string lines;  ///< the place is behind the @ if there is one
    std::string place = "";
    Arguments more = {};
  };
  const std::string nvme =
      "run: {device_memory: 1GiB}\nparallel: {gemini: {placement: cpu, nvme: {path: ";
  const std::string text =
      "model: {vocab_size: null}\neval: {at_end: false}\ndata: {type: text, seq_length: 16, ";
  const std::vector<Row> rows = {
      {"output-not-writable", 3, "run: {output_dir: @" + file + "}"},
      {"output-not-writable", 3, "", "--output-dir", {"--output-dir", file + "/x"}},
      {"output-not-writable", 3, "", "--set#1", {"--set", "run.output_dir=" + file}},
      {"output-exists", 3, "run: {output_dir: " + old + "}\ncheckpoint: {resume: @never}"},
      {"checkpoint-required", 5, "", "--resume", {"--resume", "require"}},
      {"gpu-only", 3, "parallel: {comm: {backend: @nccl}}"},
      {"nvme-path", 3, nvme + "@" + file + "}}}"},
      {"nvme-limit", 3, nvme + "., limit: @4KiB}}}"},
      {"file-not-found", 4, text + "train: [file], tokenizer: {type: bpe, path: @nowhere}}"},
      {"data-empty", 4, text + "train: @[file], tokenizer: {type: byte}}"},
      {"file-not-found",
       4,
       text + "train: [file], tokenizer: {type: byte}}",
       "--set#1",
       {"--set", "data.train=[none]"}},
  };
  const fs::path config = folder.path() / "config.yaml";
  for (const Row& row : rows) {
    std::string whole = "extends: " + data_file("tiny.yaml") + "\n# a comment\n" + row.lines + "\n";
    std::string place = row.place;
    if (const std::size_t at = whole.find('@'); at != std::string::npos) {
      place = place_in(config, whole, at);
      whole.erase(at, 1);
    }
    write_file(config, whole);
    for (const char* processes : {"1", "2"}) {
      Arguments arguments = {"train", config.string(), "--nproc", processes};
      arguments.insert(arguments.end(), row.more.begin(), row.more.end());
      const Outcome outcome = run(arguments);
      INFO(whole << "\n" << outcome.err);
      CHECK(outcome.code == row.code);
      CHECK(times_told(outcome, place + ": error: ") >= 1);
      CHECK(times_told(outcome, std::string(" [") + row.id + "]\n") >= 1);
      CHECK(times_told(outcome, "  key   ") >= 1);
      CHECK(times_told(outcome, "(" + place + ")\n") >= 1);
      if (processes[0] == '1') {
        CHECK(count(outcome.err, "error: ") == 1);
      }
    }
  }
}

TEST_CASE("a pattern that matches no parameter", "[data_check]") {
  const Case wrong(
      "train: {steps: 2, global_batch_size: 2, precision: fp32}\n"
      "optimizer: {type: adamw, lr: 1e-3, no_decay: ['*layernorm*']}\n");
  wrong.require_error(3, "pattern-unused", "text.yaml:6:46");
}

TEST_CASE("a warm-up longer than the epochs", "[data_check]") {
  const Case wrong(
      "train: {epochs: 2, global_batch_size: 4, precision: fp32}\n"
      "optimizer: {type: adamw, lr: 1e-3}\n"
      "scheduler: {type: cosine, warmup_steps: 7}\n");
  wrong.require_error(3, "warmup-too-long", "text.yaml:7:41");
}

TEST_CASE("fewer samples than a global batch", "[data_check]") {
  const Case wrong(
      "train: {steps: 2, global_batch_size: 16, precision: fp32}\n"
      "optimizer: {type: adamw, lr: 1e-3}\n");
  wrong.require_error(4, "data-too-small", "text.yaml:5:38");
}

TEST_CASE("a warning about the data is said once and stops nothing", "[data_check]") {
  const Case odd(
      "train: {epochs: 1, global_batch_size: 6, precision: fp32}\n"
      "optimizer: {type: adamw, lr: 1e-3}\n"
      "checkpoint: {at_end: false, every_steps: 9}\n");
  for (const char* processes : {"1", "2"}) {
    const Outcome outcome = run_expecting(0,
                                          {"train",
                                           odd.config().string(),
                                           "--nproc",
                                           processes,
                                           "--output-dir",
                                           (odd.run_dir() / processes).string()});
    INFO(outcome.err);
    CHECK(count(outcome.err, "[checkpoint-none]") == 1);
    CHECK(last_line(outcome).at("step") == 2);
  }
}

TEST_CASE("validate goes on to the next file after data that cannot be used", "[data_check]") {
  const Case good(
      "train: {steps: 2, global_batch_size: 2, precision: fp32}\n"
      "optimizer: {type: adamw, lr: 1e-3}\n");
  const Case empty(
      "train: {steps: 2, global_batch_size: 2, precision: fp32}\n"
      "optimizer: {type: adamw, lr: 1e-3}\n");
  write_file(empty.config().parent_path() / "train.txt", "");
  const Outcome outcome = run_expecting(
      4, {"validate", "--data", empty.config().string(), good.config().string(), "nowhere.yaml"});
  CHECK(count(outcome.err, "error: ") == 1);
  CHECK(count(outcome.err, "[data-empty]") == 1);
  CHECK(count(outcome.out, good.config().string() + ": ok\n") == 1);
  CHECK(count(outcome.out, "[file-not-found]") == 1);
}
