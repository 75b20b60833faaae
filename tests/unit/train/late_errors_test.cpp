// Does an error that is found late say to programs what it says to people?
#include "train/late_errors.hpp"

#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "train/startup.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <source_location>
#include <string>
#include <string_view>

namespace colossal::test {
namespace {

Error late_error(const std::string& message, std::string_view key = {}) {
  Error error(ErrorKind::config, "output-exists", message, std::source_location::current());
  error.blame(key);
  return error;
}

/// As with_places() leaves it.
Error late_error_at(const std::string& place) {
  return late_error("runs/a holds a run\n  fix   take another", "run.output_dir")
      .placed(place, "     3 | output_dir: runs/a\n  key   run.output_dir = runs/a\n");
}

TEST_CASE("an error is one line, its key and its fix", "[startup]") {
  const Diagnostic item = to_diagnostic(late_error_at("my configs/a.yaml:3:17"));
  CHECK(item.id == "output-exists");
  CHECK(item.severity == Diagnostic::Severity::error);
  CHECK(item.message == "runs/a holds a run");
  CHECK(item.path == "run.output_dir");
  CHECK(item.fix == "take another");
  CHECK(item.origin.file == "my configs/a.yaml");
  CHECK(item.origin.line == 3);
  CHECK(item.origin.col == 17);
}

TEST_CASE("an error without a key, a fix or a place has none", "[startup]") {
  const Diagnostic bare = to_diagnostic(late_error("no space\n  while writing\n  while saving"));
  CHECK(bare.message == "no space");
  CHECK(bare.fix.empty());
  CHECK(bare.path.empty());
  CHECK(bare.origin.file.empty());
  CHECK(bare.origin.line == 0);
  const Diagnostic nested =
      to_diagnostic(late_error("bad\n  note\n  fix   one\n        two\n  while saving"));
  CHECK(nested.message == "bad\n  note");
  CHECK(nested.fix == "one\ntwo");
}

TEST_CASE("a fix kept the alignment of the text", "[startup]") {
  const Diagnostic item = to_diagnostic(
      late_error("too large\n  held      1 GiB\n  fix       a smaller batch: 2 GiB less\n"
                 "            zero.stage: 3: 1 GiB less"));
  CHECK(item.message == "too large\n  held      1 GiB");
  CHECK(item.fix == "a smaller batch: 2 GiB less\nzero.stage: 3: 1 GiB less");
}

TEST_CASE("a program was not told the lines below the first one of an error", "[startup]") {
  // Its own lines may look like those that with_places() adds.
  const Diagnostic differs = to_diagnostic(
      late_error("differs in 1 key\n  key   optimizer.lr = 2 on rank 1\n  fix   the same file"));
  CHECK(differs.message == "differs in 1 key\n  key   optimizer.lr = 2 on rank 1");
  const std::string text = "does not fit:\n  6 layers\n  and more\n  while reading\n  fix   this";
  const Error plain = late_error(text, "model.init_from");
  const std::string lines =
      "     3 |   init_from: a\n       |              ^\n"
      "  in    included from b.yaml\n  key   model.init_from = a  (a.yaml:3:14)\n";
  const Error placed = plain.placed("a.yaml:3:14", lines);
  for (const Error& error : {plain, placed}) {
    CHECK(to_diagnostic(error).message == "does not fit:\n  6 layers\n  and more");
    CHECK(to_diagnostic(error).fix == "this");
  }
}

TEST_CASE("places of all kinds are taken apart", "[startup]") {
  struct PlaceRow {
    const char* place;
    const char* file;
    int line;
    int col;
  };
  for (const PlaceRow& row : {PlaceRow{"a.yaml:12:3", "a.yaml", 12, 3},
                              PlaceRow{"a:1:b.yaml:2:30", "a:1:b.yaml", 2, 30},
                              PlaceRow{"a:3.yaml", "a:3.yaml", 0, 0},
                              PlaceRow{"a.yaml:x:3", "a.yaml:x:3", 0, 0},
                              PlaceRow{"preset gpt2-124m, a.yaml:5:3", "a.yaml", 5, 3},
                              PlaceRow{"<stdin>:4:1", "<stdin>", 4, 1},
                              PlaceRow{"<default>", "<default>", 0, 0},
                              PlaceRow{"--set#2", "--set", 2, 0},
                              PlaceRow{"--resume", "--resume", 0, 0}}) {
    INFO(row.place);
    const Origin origin = to_diagnostic(late_error_at(row.place)).origin;
    CHECK(origin.file == row.file);
    CHECK(origin.line == row.line);
    CHECK(origin.col == row.col);
  }
}

TEST_CASE("a failure of a rank gets the place of its key from the launcher", "[startup]") {
  const test::TempDir folder;
  const std::string file = (folder.path() / "a.yaml").string();
  std::ofstream(file) << "model: {type: mlp, layers: [4], in_features: 2, out_features: 2}\n"
                         "data: {type: synthetic}\n"
                         "train: {steps: 1, micro_batch_size: 1}\n"
                         "optimizer: {type: sgd, lr: 1}\n"
                         "run: {output_dir: here}\n";
  const Loaded loaded = load(file);
  REQUIRE_FALSE(loaded.has_errors());
  RunFailure failure{1,
                     3,
                     "output-exists",
                     "here is\n  key   run.output_dir = x\n  fix   y",
                     {},
                     "run.output_dir"};
  const Diagnostic item = to_diagnostic(failure, loaded);
  CHECK(item.message == "here is");
  CHECK(item.fix == "y");
  CHECK(item.origin.file == file);
  CHECK(item.origin.line == 5);
  CHECK(item.origin.col == 19);
  failure.key = "checkpoint.resume";
  CHECK(to_diagnostic(failure, loaded).origin.line == 1);  // nobody wrote it: the file is named
  failure.key.clear();
  CHECK(to_diagnostic(failure, loaded).origin.file.empty());
  // The same place as in one process, where the error itself has it.
  try {
    with_places(loaded, []() -> int { throw Error(late_error("here is", "run.output_dir")); });
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(to_diagnostic(error).origin.line == 5);
    CHECK(to_diagnostic(error).origin.col == 19);
    CHECK(to_diagnostic(error).message == "here is");
  }
}

TEST_CASE("an error is a line of JSON in the form of the configuration's errors", "[startup]") {
  const Diagnostic item = to_diagnostic(late_error_at("a.yaml:3:17"));
  const std::string line = render({&item, 1}, DiagnosticForm::json);
  const auto json = nlohmann::json::parse(line);
  CHECK(line.find('\n') == line.size() - 1);
  CHECK(json.at("id") == "output-exists");
  CHECK(json.at("severity") == "error");
  CHECK(json.at("file") == "a.yaml");
  CHECK(json.at("line") == 3);
  CHECK(json.at("column") == 17);
  CHECK(json.at("path") == "run.output_dir");
  CHECK(json.at("related").empty());
  CHECK(json.at("fix") == "take another");
}

}  // namespace
}  // namespace colossal::test
