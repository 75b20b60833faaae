// Are the rules that need data found by every command, once, before a rank exists?
#include "e2e/program.hpp"
#include "support/free_port.hpp"

#include <fmt/format.h>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

/// A configuration on 1000 bytes of text: 15 samples.
class TextCase {
 public:
  explicit TextCase(const std::string& sections) {
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

TEST_CASE("late errors are JSON where asked for, one object from one rank or two", "[data_check]") {
  const TempDir folder;
  write_file(folder.path() / "file", "");
  const std::string file = (folder.path() / "file").string();
  struct Row {
    const char* id;
    int code;
    std::string lines;  ///< the place is behind the @
    const char* path;
  };
  const std::string text =
      "model: {vocab_size: null}\neval: {at_end: false}\ndata: {type: text, seq_length: 16, ";
  const std::vector<Row> rows = {
      {"output-not-writable", 3, "run: {output_dir: @" + file + "}", "run.output_dir"},
      {"checkpoint-required", 5, "checkpoint: {resume: @require}", "checkpoint.resume"},
      {"data-empty", 4, text + "train: @[file], tokenizer: {type: byte}}", "data.train"},
      {"pattern-unused", 3, "optimizer: {no_decay: @['*layernorm*']}", "optimizer.no_decay"}};
  const fs::path config = folder.path() / "config.yaml";
  for (const Row& row : rows) {
    std::string whole = "extends: " + data_file("tiny.yaml") + "\n# a comment\n" + row.lines + "\n";
    const std::size_t at = whole.find('@');
    whole.erase(at, 1);
    write_file(config, whole);
    const std::string run = (folder.path() / "run").string();
    for (const char* processes : {"1", "2"}) {
      Arguments arguments = {
          "train", config.string(), "--nproc", processes, "--diagnostics", "json"};
      if (row.lines.find("output_dir") == std::string::npos) {
        arguments.insert(arguments.end(), {"--output-dir", run});
      }
      const Outcome outcome = run_expecting(row.code, arguments);
      INFO(whole << "\n" << outcome.out << "\n" << outcome.err);
      CHECK(count(outcome.out, "\"severity\":\"error\"") == 1);
      const Json told = last_line(outcome);
      CHECK(told.at("id") == row.id);
      CHECK(told.at("severity") == "error");
      CHECK(told.at("path") == row.path);
      CHECK_FALSE(told.at("message").get<std::string>().empty());
      CHECK(fmt::format("{}:{}:{}",
                        told.at("file").get<std::string>(),
                        told.at("line").get<int>(),
                        told.at("column").get<int>()) == place_in(config, whole, at));
      CHECK((processes[0] == '2' || count(outcome.err, "error: ") == 0));
    }
  }
}

TEST_CASE("errors without a key, and of every command that has --diagnostics, are JSON too",
          "[data_check]") {
  const TextCase empty(
      "train: {steps: 2, global_batch_size: 2, precision: fp32}\n"
      "optimizer: {type: adamw, lr: 1e-3}\n");
  write_file(empty.config().parent_path() / "train.txt", "");
  const std::string file = empty.config().string();
  for (const Arguments& arguments :
       {Arguments{"validate", "--data", file}, Arguments{"plan", file}}) {
    const Outcome outcome = run_expecting(4, joined({arguments, {"--diagnostics", "json"}}));
    INFO(outcome.out << outcome.err);
    const Json told = Json::parse(outcome.out);
    CHECK(told.at("id") == "data-empty");
    CHECK(told.at("path") == "data.train");
    CHECK(told.at("line") == 4);
    CHECK(outcome.err.empty());
  }
  const TextCase small(
      "train: {steps: 2, global_batch_size: 16, precision: fp32}\n"
      "optimizer: {type: adamw, lr: 1e-3}\n");
  const Outcome planned =
      run_expecting(4, {"plan", small.config().string(), "--diagnostics", "json"});
  CHECK(Json::parse(planned.out).at("id") == "data-too-small");
  CHECK(planned.err.empty());
  const Outcome usage = run_expecting(
      2, {"train", small.config().string(), "--diagnostics", "json", "--max-restarts", "2"});
  const Json told = Json::parse(usage.out);
  CHECK(told.at("id") == "restarts-without-nproc");
  CHECK(told.at("file") == "");
  CHECK(told.at("path") == "");
  CHECK(told.at("fix").get<std::string>().starts_with("add --nproc 1"));
  CHECK(usage.err.empty());
}

TEST_CASE("ranks of another launcher tell a late error as JSON once", "[data_check]") {
  const TempDir folder;
  const std::string run = (folder.path() / "run").string();
  const int port = free_port();
  const Arguments train = train_tiny(run, {"--resume", "require", "--diagnostics", "json"});
  Program first(train, torchrun_rank(0, 2, port));
  Program second(train, torchrun_rank(1, 2, port));
  const Outcome one = first.wait();
  const Outcome two = second.wait();
  INFO(one.out << one.err << two.out << two.err);
  const Json told = Json::parse(one.out);
  CHECK(told.at("id") == "checkpoint-required");
  CHECK(told.at("path") == "checkpoint.resume");
  CHECK(told.at("file") == "--resume");
  CHECK(two.out.empty());
  CHECK(count(one.err + two.err, "[checkpoint-required]") == 1);
}

TEST_CASE("ranks of another launcher that differ tell it as JSON once, with the key",
          "[data_check]") {
  const TempDir folder;
  const int port = free_port();
  const Arguments train = train_tiny(folder.path() / "run", {"--diagnostics", "json"});
  Program first(train, torchrun_rank(0, 2, port));
  Program second(joined({train, {"--set", "optimizer.lr=2e-2"}}), torchrun_rank(1, 2, port));
  const Outcome one = first.wait();
  const Outcome two = second.wait();
  INFO(one.out << one.err << two.out << two.err);
  CHECK(count(one.out, "\n") == 1);
  const Json told = Json::parse(one.out);
  CHECK(told.at("id") == "config-differs");
  const auto message = told.at("message").get<std::string>();
  CHECK(message.find("\n  key   optimizer.lr = 0.02 on rank 1, 0.01 on rank 0") != message.npos);
  CHECK(told.at("fix").get<std::string>().starts_with("give every rank"));
  CHECK(two.out.empty());
}

TEST_CASE("ranks of another launcher all told an error before they meet as JSON", "[data_check]") {
  const TempDir folder;
  const fs::path config = folder.path() / "config.yaml";
  write_file(config,
             "extends: " + data_file("tiny.yaml") +
                 "\nmodel: {vocab_size: null}\neval: {at_end: false}\n"
                 "data: {type: text, seq_length: 16, train: [a], "
                 "tokenizer: {type: bpe, path: nowhere}}\n");
  const Arguments train = {"train", config.string(), "--diagnostics", "json"};
  const int port = free_port();
  Program first(train, torchrun_rank(0, 2, port));
  Program second(train, torchrun_rank(1, 2, port));
  const Outcome one = first.wait();
  const Outcome two = second.wait();
  INFO(one.out << one.err << two.out << two.err);
  CHECK(count(one.out, "\"severity\":\"error\"") == 1);  // beside a note
  CHECK(last_line(one).at("path") == "data.tokenizer.path");
  CHECK(one.err.empty());
  CHECK(two.out.empty());
  CHECK(count(two.err, " [file-not-found]\n") == 1);
}

TEST_CASE("a pattern that matches no parameter", "[data_check]") {
  const TextCase wrong(
      "train: {steps: 2, global_batch_size: 2, precision: fp32}\n"
      "optimizer: {type: adamw, lr: 1e-3, no_decay: ['*layernorm*']}\n");
  wrong.require_error(3, "pattern-unused", "text.yaml:6:46");
}

TEST_CASE("a warm-up longer than the epochs", "[data_check]") {
  const TextCase wrong(
      "train: {epochs: 2, global_batch_size: 4, precision: fp32}\n"
      "optimizer: {type: adamw, lr: 1e-3}\n"
      "scheduler: {type: cosine, warmup_steps: 7}\n");
  wrong.require_error(3, "warmup-too-long", "text.yaml:7:41");
}

TEST_CASE("fewer samples than a global batch", "[data_check]") {
  const TextCase wrong(
      "train: {steps: 2, global_batch_size: 16, precision: fp32}\n"
      "optimizer: {type: adamw, lr: 1e-3}\n");
  wrong.require_error(4, "data-too-small", "text.yaml:5:38");
}

TEST_CASE("a warning about the data is said once and stops nothing", "[data_check]") {
  const TextCase odd(
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
  const TextCase good(
      "train: {steps: 2, global_batch_size: 2, precision: fp32}\n"
      "optimizer: {type: adamw, lr: 1e-3}\n");
  const TextCase empty(
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
