// Do examples become files that work, and are names that were given wrongly put right?
#include "e2e/program.hpp"
#include "e2e/shell.hpp"
#include "support/free_port.hpp"

#include <chrono>
#include <memory>
#include <sys/stat.h>
#include <thread>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

const fs::path kExamples = fs::path(COLOSSAL_SOURCE_DIR) / "configs";

}  // namespace

TEST_CASE("config explain takes CONFIG and KEY in either order", "[config]") {
  const std::string tiny = data_file("tiny.yaml");
  const std::string expected = run_expecting(0, {"config", "explain", tiny, "optimizer.lr"}).out;
  CHECK(run_expecting(0, {"config", "explain", "optimizer.lr", tiny}).out == expected);
  const Outcome missing = run_expecting(3, {"config", "explain", "optimizer.lr", "no-file.yaml"});
  CHECK(count(missing.err, "no-file.yaml does not exist [file-not-found]") == 1);
  const Outcome wrong = run_expecting(2, {"config", "explain", tiny, "optimizer.l"});
  CHECK(count(wrong.err, "[unknown-key]") == 1);
}

TEST_CASE("a file that is not there is looked for under the nearest name", "[config]") {
  const TempDir folder;
  const std::string config = (folder.path() / "my-run.yaml").string();
  write_file(config, read_file(data_file("tiny.yaml")));
  const std::string near = (folder.path() / "my-rnu.yaml").string();
  const std::string stem = (folder.path() / "my-run").string();
  for (const std::string& name : {near, stem}) {
    for (const Arguments& words : {Arguments{"validate", name},
                                   Arguments{"train", name},
                                   Arguments{"train", name, "--nproc", "2"},
                                   Arguments{"plan", name},
                                   Arguments{"config", "show", name},
                                   Arguments{"config", "diff", config, name}}) {
      const Outcome outcome = run_expecting(3, words);
      CHECK(count(outcome.out + outcome.err, "did you mean " + config + "?\n") == 1);
    }
  }
  const Outcome whole = run_expecting(3, {"validate", folder.path().string()});
  CHECK(count(whole.out, "is a folder [file-not-readable]") == 1);
  CHECK(count(whole.out, "did you mean " + (folder.path() / "*.yaml").string() + "?") == 1);
  const Outcome no_run = run_expecting(3, {"config", "diff", config, folder.path().string()});
  CHECK(count(no_run.err, "a folder without config.resolved.yaml [file-not-found]") == 1);
}

TEST_CASE("config init writes every example whole, and it works where it lands", "[config]") {
  const TempDir folder;
  const Outcome help = run_expecting(0, {"config", "init", "--help"});
  int runs = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kExamples)) {
    if (entry.path().extension() != ".yaml" || entry.path().parent_path() == kExamples / "sweeps") {
      continue;
    }
    const std::string name =
        entry.path().lexically_relative(kExamples).replace_extension().string();
    INFO(name);
    CHECK(count(help.out, "  " + name + "\n") == 1);
    const std::string target = (folder.path() / entry.path().filename()).string();
    const Outcome written = run_expecting(0, {"config", "init", name, "-o", target});
    CHECK(written.out.empty());
    CHECK(count(written.err, "\n") == 1);
    CHECK(count(written.err, "wrote " + target) == 1);
    const std::string text = read_file(target);
    CHECK(count(text, "../") == 0);
    if (entry.path().parent_path() != kExamples) {
      continue;  // a fragment
    }
    CHECK(count(written.err, "; next: ") == 1);
    CHECK(count(written.err, target) == 2);
    CHECK(count(text, "\nextends:") == 0);
    CHECK(count(text, "configs/" + name) == 0);  // the comments name the new file
    run_expecting(0, {"validate", target});
    CHECK(run_expecting(0, {"config", "diff", entry.path().string(), target}).out.empty());
    ++runs;
  }
  CHECK(runs > 10);
}

TEST_CASE("config init refuses what is there, what cannot be written and unknown names",
          "[config]") {
  const TempDir folder;
  const std::string target = (folder.path() / "tiny.yaml").string();
  run_expecting(0, {"config", "init", "tiny-cpu", "-o", target});
  const std::string text = read_file(target);
  run_expecting(0,
                {"train", target, "--dry-run", "--output-dir", (folder.path() / "run").string()});
  const Outcome again = run_expecting(2, {"config", "init", "mlp-cpu", "--output", target});
  CHECK(count(again.err, "[file-exists]") == 1);
  CHECK(read_file(target) == text);
  const std::string nowhere = (folder.path() / "none" / "tiny.yaml").string();
  const Outcome lost = run_expecting(3, {"config", "init", "tiny-cpu", "-o", nowhere});
  CHECK(count(lost.err, "[output-not-writable]") == 1);
  const Outcome unknown = run_expecting(2, {"config", "init", "tiny"});
  CHECK(count(unknown.err, "[unknown-example]") == 1);
  CHECK(count(unknown.err, "tiny-cpu") == 1);
}

TEST_CASE("config init names files as they lie to each other, or drops what is not there",
          "[config]") {
  const fs::path build = fs::path(COLOSSAL_BINARY).parent_path();
  const fs::path root = kExamples.parent_path();
  if (build.parent_path().parent_path() == root) {  // else the build is not within the sources
    const fs::path within = build / "init-test.yaml";
    fs::remove(within);
    run_expecting(0, {"config", "init", "gpt-kjv-cpu", "-o", within.string()});
    const std::string text = read_file(within);
    fs::remove(within);
    CHECK(text.starts_with(
        "# yaml-language-server: $schema=../../schemas/colossal-train.schema.json\n"));
    CHECK(count(text, "train: [../../datasets/kjv/train.txt] ") == 1);
  }
  const TempDir folder;
  fs::copy_file(COLOSSAL_BINARY, folder.path() / "colossal-train");
  const std::string said =
      shell("sh",
            "cd " + folder.path().string() +
                " && ./colossal-train config init gpt-kjv-cpu -o my.yaml && cat my.yaml && "
                "./colossal-train config init gpt-kjv-cpu\n");
  CHECK(count(said, "wrote my.yaml; next: colossal-train train my.yaml\n") == 1);
  CHECK(count(said, "yaml-language-server") == 0);
  CHECK(count(said, "train: [datasets/kjv/train.txt] ") == 2);  // in the file and on stdout
}

TEST_CASE("a configuration comes from standard input, for one process and for several",
          "[config]") {
  const TempDir folder;
  const fs::path input = folder.path() / "input";
  const Setting piped{.input = input.string()};
  write_file(input, "extends: " + data_file("tiny.yaml") + "\nrun: {name: null}\n");
  CHECK(run_expecting(0, {"validate", "-"}, piped).out == "-: ok\n");
  CHECK(count(run_expecting(0, {"config", "show", "-"}, piped).out, "  name: stdin\n") == 1);
  for (const char* processes : {"1", "2"}) {
    const fs::path run_dir = folder.path() / processes;
    run_expecting(0, {"train", "-", "--nproc", processes, "--output-dir", run_dir.string()}, piped);
    CHECK(records(run_dir).size() == 12);
    CHECK(read_file(run_dir / "config.yaml") == read_file(input));
    run_expecting(0,
                  {"eval", "--checkpoint", run_dir.string(), "--config", "-", "--nproc", processes},
                  piped);
  }
  write_file(input, "version: 1\nrun: {sede: 3}\n");
  const Outcome wrong = run_expecting(3, {"train", "-", "--nproc", "2"}, piped);
  CHECK(count(wrong.err, "<stdin>:2:7: error: ") == 1);
  CHECK(count(wrong.err, "     2 | run: {sede: 3}\n") == 1);
  write_file(input, "");
  CHECK(count(run_expecting(3, {"validate", "-"}, piped).out, "[empty-config]") == 1);
  const Setting directory{.input = folder.path().string()};
  CHECK(count(run_expecting(3, {"validate", "-"}, directory).out, "[file-not-readable]") == 1);
}

TEST_CASE("a configuration comes through a pipe, which is read once for all who need it",
          "[config]") {
  const TempDir folder;
  const fs::path pipe = folder.path() / "pipe.yaml";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const std::string text = "extends: " + data_file("tiny.yaml") + "\nrun: {name: null}\n";
  const auto piped = [&](int code, const std::string& content, const Arguments& arguments) {
    std::thread writer([&] { write_file(pipe, content); });
    const Outcome outcome = run_expecting(code, arguments, {.timeout = std::chrono::seconds(60)});
    writer.join();
    return outcome;
  };
  const fs::path run_dir = folder.path() / "run";
  piped(0, text, {"train", pipe.string(), "--nproc", "2", "--output-dir", run_dir.string()});
  CHECK(records(run_dir).size() == 12);
  CHECK(read_file(run_dir / "config.yaml") == text);
  CHECK(count(piped(0, text, {"plan", pipe.string()}).out, "plan      pipe ") == 1);
  const std::string tiny = data_file("tiny.yaml");
  CHECK(
      count(piped(0, "run: {name: over}\n", {"plan", tiny, "--config-overlay", pipe.string()}).out,
            "plan      over ") == 1);
  const Outcome wrong = piped(3, "version: 1\nrun: {sede: 3}\n", {"validate", pipe.string()});
  CHECK(count(wrong.out, "     2 | run: {sede: 3}\n") == 1);

  // Of an open descriptor children have another one, and nothing lies beside it.
  const fs::path input = folder.path() / "input";
  write_file(input, text);
  const Setting redirected{.input = input.string()};
  const fs::path second = folder.path() / "second";
  run_expecting(
      0, {"train", "/dev/stdin", "--nproc", "2", "--output-dir", second.string()}, redirected);
  CHECK(records(second).size() == 12);
  write_file(input,
             "model: {type: gpt, num_layers: 1, hidden_size: 16, num_heads: 2}\n"
             "data: {type: text, seq_length: 16, train: [a.txt], tokenizer: {type: byte}}\n"
             "train: {steps: 1, micro_batch_size: 1}\n"
             "optimizer: {type: adamw, lr: 1e-3}\n");
  const Outcome shown = run_expecting(0, {"config", "show", "/dev/stdin"}, redirected);
  CHECK(count(shown.out, (fs::current_path() / "a.txt").string()) == 1);
}

TEST_CASE("C6 row 83: the plan is told once, however many ranks there are", "[config]") {
  const TempDir folder;
  const Outcome launched =
      run_expecting(0, train_tiny(folder.path() / "a", {"--nproc", "8", "--set", "train.steps=9"}));
  CHECK(count("\n" + launched.err, "\nplan  ") == 1);
  CHECK(count("\n" + launched.err, "\nbatch  ") == 1);
  const int port = free_port();
  std::vector<std::unique_ptr<Program>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(
        std::make_unique<Program>(train_tiny(folder.path() / "b"), torchrun_rank(rank, 2, port)));
  }
  std::string told = "\n";
  for (const auto& rank : ranks) {
    const Outcome outcome = rank->wait();
    CHECK(outcome.code == 0);
    told += outcome.err;
  }
  CHECK(count(told, "\nplan  ") == 1);
}
