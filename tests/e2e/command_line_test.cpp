// Does the command line explain itself and refuse what it does not know?
#include "e2e/program.hpp"
#include "e2e/shell.hpp"

#include <algorithm>

using namespace colossal::test;
namespace fs = std::filesystem;

TEST_CASE("every level has help with an example on stdout", "[cli]") {
  const std::vector<Arguments> levels = {{},
                                         {"train"},
                                         {"validate"},
                                         {"plan"},
                                         {"eval"},
                                         {"inspect"},
                                         {"generate"},
                                         {"config"},
                                         {"config", "show"},
                                         {"config", "schema"}};
  for (Arguments level : levels) {
    level.emplace_back("--help");
    const Outcome outcome = run_expecting(0, level);
    CHECK(count(outcome.out, "Example:") == 1);
    CHECK(count(outcome.out, "colossal-train") >= 1);
    CHECK(outcome.err.empty());
  }
}

TEST_CASE("every command's help has the options that all of them take, and they work there",
          "[cli]") {
  const std::vector<Arguments> commands = {
      {"train"}, {"validate"}, {"plan"}, {"config"}, {"config", "show"}, {"dataset", "inspect"}};
  for (Arguments command : commands) {
    command.emplace_back("--help");
    const std::string help = run_expecting(0, command).out;
    const std::size_t at = help.find("\nOptions of every command:\n");
    REQUIRE(at != std::string::npos);
    for (const char* option : {"  -q,--quiet ", "  -v,--verbose ", "  --color WHEN"}) {
      CHECK(help.find(option, at) != std::string::npos);
      CHECK(count(help, option) == 1);
    }
    CHECK(count(help, "--version") == 0);
  }
  CHECK(count(run_expecting(0, {"--help"}).out, "--color") == 1);
  const TempDir folder;
  const Outcome quiet =
      run_expecting(0, train_tiny(folder.path(), {"--quiet", "--set", "train.steps=9"}));
  CHECK(count(quiet.err, "step  ") == 0);
}

TEST_CASE("help is as wide as COLUMNS says", "[cli]") {
  const auto longest = [](const std::string& columns) {
    const Outcome outcome =
        run_expecting(0, {"train", "--help"}, {.environment = {{"COLUMNS", columns}}});
    const std::string options = outcome.out.substr(
        outcome.out.find("Options:"), outcome.out.find("Example:") - outcome.out.find("Options:"));
    std::size_t most = 0;
    for (std::size_t begin = 0; begin < options.size();) {
      const std::size_t end = std::min(options.find('\n', begin), options.size());
      most = std::max(most, end - begin);
      begin = end + 1;
    }
    return most;
  };
  CHECK(longest("60") <= 60);
  CHECK(longest("80") <= 80);
  CHECK(longest("80") > 60);
  CHECK(longest("10") <= 80);   // no narrower than words are
  CHECK(longest("wide") > 80);  // no number: lines as they are
  CHECK(longest("100000") > 80);
}

TEST_CASE("two dashes end the options", "[cli]") {
  const TempDir folder;
  const std::string config = (folder.path() / "-x.yaml").string();
  write_file(config, read_file(data_file("tiny.yaml")));
  run_expecting(0, {"validate", "--world-size", "1", "--", config});
  const Outcome extra = run_expecting(2, {"plan", "--", config, "--world-size=2"});
  CHECK(count(extra.err, "'--world-size=2' is one argument too many [unexpected-argument]") == 1);
  const Outcome option = run_expecting(2, {"plan", "--wrold-size=2", "--", config});
  CHECK(count(option.err, "did you mean '--world-size'? [unknown-option]") == 1);
  const Outcome file = run_expecting(3, {"validate", "--", "--data"});
  CHECK(count(file.out, "--data does not exist [file-not-found]") == 1);
  CHECK(run_expecting(0, {"config", "explain", "--", "optimizer.lr"})
            .out.starts_with("optimizer.lr\n"));
}

TEST_CASE("without a working directory a run says so", "[cli]") {
  const TempDir folder;
  const std::string gone = (folder.path() / "gone").string();
  const std::string told =
      shell("bash",
            "mkdir " + gone + " && cd " + gone + " && rmdir " + gone + "\n" + COLOSSAL_BINARY +
                " train " + data_file("tiny.yaml") + " --output-dir " +
                (folder.path() / "run").string() + "\n[ $? = 9 ]");
  CHECK(count(told, "error: ") == 1);
  CHECK(count(told, "[no-working-directory]") == 1);
  CHECK(count(told, "cd /") == 1);
  CHECK_FALSE(fs::exists(folder.path() / "run"));
}

TEST_CASE("the version names the build", "[cli]") {
  const Outcome outcome = run_expecting(0, {"--version"});
  CHECK(outcome.out.starts_with("colossal-train 0."));
  CHECK(count(outcome.out, "+") == 1);
}

TEST_CASE("wrong words end with exit code 2 and the nearest right one", "[cli]") {
  struct Wrong {
    Arguments arguments;
    std::string id;
    std::string says;
  };
  const std::string config = data_file("tiny.yaml");
  const std::vector<Wrong> all = {
      {{}, "missing-argument", "a command is missing"},
      {{"trian", config}, "unknown-command", "did you mean 'train'"},
      {{"config", "shwo"}, "unknown-command", "did you mean 'show'"},
      {{"train", config, "--nprocs", "2"}, "unknown-option", "did you mean '--nproc'"},
      {{"train", "--dryrun", config}, "unknown-option", "did you mean '--dry-run'"},
      {{"train", "--zzz"}, "unknown-option", "'--zzz'"},
      {{"plan", config, "--world-sise=2"}, "unknown-option", "did you mean '--world-size'"},
      {{"train"}, "missing-argument", "CONFIG is missing"},
      {{"eval"}, "missing-argument", "--checkpoint is missing"},
      {{"train", config, "extra"}, "unexpected-argument", "'extra'"},
      {{"train", config, "--nproc"}, "usage", "--nproc"},
      {{"train", config, "--nproc", "many"}, "bad-nproc", "'many'"},
      {{"train", config, "--nproc", "0"}, "bad-nproc", "'0'"},
      {{"plan", config, "--format", "xml"}, "usage", "xml"},
      {{"plan", config, "--world-size", "-1"}, "usage", "--world-size"},
      {{"plan", config, "--world-size", "0"}, "usage", "'0' is no number of processes"},
      {{"validate", config, "--world-size", "2x"}, "usage", "'2x' is no number of processes"},
      {{"-q", "-v", "plan", config}, "usage", "-q and -v"},
      {{"train", config, "--overwrite", "--resume", "auto"}, "overwrite-resume", "--resume auto"},
  };
  for (const Wrong& wrong : all) {
    const Outcome outcome = run_expecting(2, wrong.arguments);
    INFO(outcome.err);
    CHECK(outcome.out.empty());
    CHECK(count(outcome.err, "[" + wrong.id + "]") == 1);
    CHECK(count(outcome.err, wrong.says) >= 1);
  }
}

TEST_CASE("options may stand before and after the arguments", "[cli]") {
  const std::string config = data_file("tiny.yaml");
  const Outcome before = run_expecting(0, {"plan", "--world-size", "2", config});
  const Outcome after = run_expecting(0, {"plan", config, "--world-size=2"});
  // What is free on the disk changes by itself.
  const auto kept = [](const std::string& text) { return text.substr(0, text.find("; free on ")); };
  CHECK(kept(before.out) == kept(after.out));
}

TEST_CASE("--color colours messages of every kind, files and results never", "[cli]") {
  const TempDir folder;
  const std::string bad = (folder.path() / "bad.yaml").string();
  write_file(bad, "run: {naem: x}\n");
  const std::string red = "\x1b[1;31merror:\x1b[0m ";
  for (const Arguments& arguments : {Arguments{"--color", "always", "validate", bad},
                                     Arguments{"--color=always", "-q", "validate", bad},
                                     Arguments{"validate", bad, "--color", "always"}}) {
    const Outcome outcome = run_expecting(3, arguments);
    CHECK(count(outcome.out, "bad.yaml:1:7: " + red + "`naem` is not a key") == 1);
    CHECK(count(outcome.out, "\x1b[1;31m^~~~\x1b[0m") == 1);
  }
  const Outcome json =
      run_expecting(3, {"validate", bad, "--diagnostics", "json", "--color", "always"});
  CHECK(count(json.out, "\x1b") == 0);
  for (const Arguments& arguments : {Arguments{"--color", "always", "train"},
                                     Arguments{"config", "init", "none", "--color", "always"}}) {
    const Outcome outcome = run(arguments);
    CHECK(outcome.code != 0);
    CHECK(outcome.err.starts_with(red));
  }
  for (const char* when : {"auto", "never"}) {  // stderr is a file here
    CHECK(count(run({"train", "--color", when}).err, "\x1b") == 0);
  }
  CHECK(count(run_expecting(2, {"--color", "blue", "validate", bad}).err, "blue") == 1);
}

TEST_CASE("ranks of a launcher write plain words, the launcher colours them", "[cli]") {
  const TempDir folder;
  const Outcome outcome = run(train_tiny(
      folder.path(),
      {"--nproc", "2", "--color", "always", "--resume", (folder.path() / "x").string()}));
  INFO(outcome.err);
  CHECK(outcome.code != 0);
  CHECK(count(outcome.err, "\x1b[1;31merror:\x1b[0m ") >= 1);
}

TEST_CASE("a plan shows every rank's place, what it has and what is free", "[cli]") {
  const std::string config = data_file("tiny.yaml");
  const Outcome plan = run_expecting(0,
                                     {"plan",
                                      config,
                                      "--world-size",
                                      "2",
                                      "--set",
                                      "run.device_memory=1GiB",
                                      "--set",
                                      "run.output_dir=/none/of/these"});
  INFO(plan.out);
  CHECK(count(plan.out, "\nrank      node  gpu  dp  pp  sp  tp") == 1);
  CHECK(count(plan.out, "\n0            0    -   0   0   0   0 ") == 1);
  CHECK(count(plan.out, "\n1            0    -   1   0   0   0 ") == 1);
  CHECK(count(plan.out, " / 1.0 GiB\n") == 2);
  CHECK(count(plan.out, "; free on /: ") == 1);
  const Outcome unknown = run_expecting(0, {"plan", config});
  CHECK(count(unknown.out, " / -\n") == 1);
}

TEST_CASE("config show prints what the program understood", "[cli]") {
  const std::string config = data_file("tiny.yaml");
  const Outcome minimal =
      run_expecting(0, {"config", "show", config, "--minimal", "--set", "optimizer.lr=0.5"});
  CHECK(count(minimal.out, "lr: 0.5") == 1);
  const TempDir folder;
  const Outcome resolved = run_expecting(0, {"config", "show", config});
  write_file(folder.path() / "again.yaml", resolved.out);
  const Outcome again =
      run_expecting(0, {"config", "show", (folder.path() / "again.yaml").string(), "--resolved"});
  CHECK(again.out == resolved.out);
  run_expecting(2, {"config", "show", config, "--minimal", "--resolved"});
}

TEST_CASE("the schema is JSON on stdout", "[cli]") {
  const Json schema = Json::parse(run_expecting(0, {"config", "schema"}).out);
  CHECK(schema.at("properties").contains("optimizer"));
}

TEST_CASE("a schedule is drawn into a file, or the folder is refused", "[usage]") {
  const TempDir folder;
  const std::string picture = (folder.path() / "lr.svg").string();
  run_expecting(0, {"plan", data_file("tiny.yaml"), "--lr-plot", picture});
  CHECK(read_file(picture).starts_with("<svg"));
  const std::string nowhere = (folder.path() / "none" / "lr.svg").string();
  const Outcome refused = run_expecting(9, {"plan", data_file("tiny.yaml"), "--lr-plot", nowhere});
  CHECK(count(refused.err, "[lr-plot-unwritable]") == 1);
  CHECK(count(refused.err, nowhere) == 1);
}
