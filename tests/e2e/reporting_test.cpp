// Do the reports of a run say the same as metrics.jsonl, also after it was killed and resumed?
#include "e2e/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

using namespace colossal::test;
namespace fs = std::filesystem;

namespace {

/// What the tensorboard package reads from a run: {tag: [[step, wall time, value], ...]}.
Json tensorboard_of(const fs::path& run_dir) {
  const std::string command = fmt::format("'{}' '{}/scripts/golden/read_events.py' '{}' 2>&1",
                                          COLOSSAL_PYTHON,
                                          COLOSSAL_SOURCE_DIR,
                                          (run_dir / "tensorboard").string());
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  REQUIRE(pipe != nullptr);
  std::string text;
  for (int c = std::fgetc(pipe.get()); c != EOF; c = std::fgetc(pipe.get())) {
    text += static_cast<char>(c);
  }
  INFO(text);
  const std::size_t start = text.find("{\"");
  REQUIRE(start != std::string::npos);
  return Json::parse(text.substr(start));
}

/// Requires that a curve has exactly the points of the records, in order.
void require_curve(const Json& points,
                   const std::map<int, Json>& wanted,
                   const std::string& field) {
  REQUIRE(points.size() == wanted.size());
  std::size_t i = 0;
  for (const auto& [step, record] : wanted) {
    INFO(field << " of step " << step);
    CHECK(points[i][0] == step);
    CHECK(points[i][1] == record.at("t"));
    CHECK(points[i][2].get<float>() == record.at(field).get<float>());
    ++i;
  }
}

/// A run that was killed after step 10 and went on from its checkpoint of step 6.
void run_and_resume(const fs::path& run_dir) {
  const Arguments more = {"--set", "logging.csv=true", "--set", "eval.every_steps=3"};
  run_expecting(0, train_tiny(run_dir, more));
  fs::remove_all(run_dir / "checkpoints" / "step-00000012");
  run_expecting(0, train_tiny(run_dir, more));
}

std::vector<std::vector<std::string>> csv_of(const fs::path& run_dir) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream in(read_file(run_dir / "metrics.csv"));
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string>& row = rows.emplace_back();
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) {
      row.push_back(cell);
    }
  }
  return rows;
}

/// The fields that schemas/metrics.md lists for all records or under the heading of a kind.
std::set<std::string> documented_fields(const std::string& kind) {
  std::set<std::string> fields;
  std::istringstream in(read_file(fs::path(COLOSSAL_SOURCE_DIR) / "schemas" / "metrics.md"));
  bool ours = true;
  for (std::string line; std::getline(in, line) && !line.starts_with("Example");) {
    if (line.starts_with("## kind")) {
      ours = line.starts_with("## kind `" + kind + "`");
    } else if (ours && line.starts_with("| `")) {
      fields.insert(line.substr(3, line.find('`', 3) - 3));
    }
  }
  return fields;
}

/// Number of events of a kind ("X": complete) and category ("": any) of a trace.
int count_of(const Json& trace, const std::string& category, const std::string& kind = "X") {
  int found = 0;
  for (const Json& event : trace.at("traceEvents")) {
    found += event.at("ph") == kind && (category.empty() || event.at("cat") == category) ? 1 : 0;
  }
  return found;
}

/// Requires that complete events carry what the format demands and nest on every track: viewers
/// draw anything else wrongly or not at all.
void require_nested(const Json& trace, int rank) {
  std::map<int, std::vector<std::pair<double, double>>> tracks;  // (begin, -end) of events
  for (const Json& event : trace.at("traceEvents")) {
    REQUIRE(event.at("pid") == rank);
    if (event.at("ph") == "X") {
      const double begin = event.at("ts").get<double>();
      REQUIRE(event.at("dur").get<double>() >= 0);
      REQUIRE_FALSE(event.at("name").get<std::string>().empty());
      tracks[event.at("tid").get<int>()].emplace_back(begin,
                                                      -(begin + event.at("dur").get<double>()));
    }
  }
  constexpr double kRounding = 1e-3;  // microseconds with three digits
  for (auto& [track, spans] : tracks) {
    std::sort(spans.begin(), spans.end());  // by begin, outer ones first
    std::vector<double> ends;
    for (const auto& [begin, negative_end] : spans) {
      while (!ends.empty() && ends.back() <= begin + kRounding) {
        ends.pop_back();
      }
      INFO("track " << track << " at " << begin);
      REQUIRE((ends.empty() || -negative_end <= ends.back() + kRounding));
      ends.push_back(-negative_end);
    }
  }
}

}  // namespace

TEST_CASE("TensorBoard reads the curves of a run", "[reporting]") {
  const TempDir folder;
  run_expecting(0, train_tiny(folder.path() / "run", {"--nproc", "2"}));
  const Json curves = tensorboard_of(folder.path() / "run");
  const std::map<int, Json> train = records(folder.path() / "run");
  for (const char* field : {"loss", "lr", "grad_norm", "tokens_per_s", "epoch", "mem_peak"}) {
    require_curve(curves.at(std::string("train/") + field), train, field);
  }
  const std::map<int, Json> eval = records(folder.path() / "run", "eval");
  require_curve(curves.at("eval/loss"), eval, "loss");
  require_curve(curves.at("eval/ppl"), eval, "ppl");
}

TEST_CASE("TensorBoard drops the points of work that a resume repeats", "[reporting]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  run_and_resume(run_dir);
  const auto files = std::distance(fs::directory_iterator(run_dir / "tensorboard"), {});
  CHECK(files == 2);
  const Json curves = tensorboard_of(run_dir);
  // records() keeps the last record of a step, whose time tells the second attempt from the first
  const std::map<int, Json> train = records(run_dir);
  CHECK(train.at(6).at("attempt") == 1);
  CHECK(train.at(7).at("attempt") == 2);
  require_curve(curves.at("train/loss"), train, "loss");
  require_curve(curves.at("eval/loss"), records(run_dir, "eval"), "loss");
}

TEST_CASE("a run that starts over leaves no points of the lost start", "[reporting]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  run_expecting(0, train_tiny(run_dir, {"--set", "eval.at_start=true"}));
  fs::remove_all(run_dir / "checkpoints");
  run_expecting(0, train_tiny(run_dir, {"--set", "eval.at_start=true", "--set", "train.steps=10"}));
  std::map<int, Json> train = records(run_dir);
  train.erase(train.upper_bound(10), train.end());
  std::map<int, Json> eval = records(run_dir, "eval");
  eval.erase(eval.upper_bound(10), eval.end());
  const Json curves = tensorboard_of(run_dir);
  require_curve(curves.at("train/loss"), train, "loss");
  require_curve(curves.at("eval/loss"), eval, "loss");
}

TEST_CASE("metrics.csv has the last record of every step, digit by digit", "[reporting]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  run_and_resume(run_dir);
  const std::vector<std::vector<std::string>> rows = csv_of(run_dir);
  const std::vector<std::string>& header = rows.at(0);
  const auto column = [&](const std::string& name) {
    return static_cast<std::size_t>(std::find(header.begin(), header.end(), name) - header.begin());
  };
  std::map<int, Json> train = records(run_dir);
  std::map<int, Json> eval = records(run_dir, "eval");
  REQUIRE(rows.size() == 1 + train.size() + eval.size());
  for (std::size_t i = 1; i < rows.size(); ++i) {
    auto& wanted = rows[i].at(column("kind")) == "train" ? train : eval;
    const int step = std::stoi(rows[i].at(column("step")));
    REQUIRE(wanted.contains(step));
    for (const auto& [field, value] : wanted.at(step).items()) {
      INFO(field << " of step " << step);
      REQUIRE(column(field) < header.size());  // no field is left out
      CHECK(rows[i].at(column(field)) ==
            (value.is_string() ? value.get<std::string>() : value.dump()));
    }
    wanted.erase(step);
  }
}

TEST_CASE("every field of a record is in schemas/metrics.md and in metrics.csv", "[reporting]") {
  const TempDir folder;
  const Arguments more = {"--set", "logging.csv=true"};
  run_expecting(
      0, train_tiny(folder.path() / "gpt", {more[0], more[1], "--set", "train.precision=fp16"}));
  run_expecting(0,
                {"train",
                 (fs::path(COLOSSAL_SOURCE_DIR) / "configs" / "mlp-cpu.yaml").string(),
                 "--output-dir",
                 (folder.path() / "mlp").string(),
                 "--set",
                 "train.steps=20",
                 more[0],
                 more[1]});
  for (const std::string kind : {"train", "eval"}) {
    std::set<std::string> unwritten = documented_fields(kind);
    REQUIRE(unwritten.size() > 8);
    const std::set<std::string> documented = unwritten;
    for (const char* model : {"gpt", "mlp"}) {
      const std::vector<std::string> header = csv_of(folder.path() / model).at(0);
      const Json last = records(folder.path() / model, kind).rbegin()->second;
      for (const auto& [field, value] : last.items()) {
        INFO(field << " of " << kind << " records, " << model);
        CHECK(documented.contains(field));
        CHECK(std::ranges::find(header, field) != header.end());
        unwritten.erase(field);
      }
    }
    CHECK(unwritten.empty());
  }
}

TEST_CASE("every rank leaves a trace that viewers open, and rank 0 prints the phases",
          "[reporting]") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  const Outcome outcome =
      run_expecting(0,
                    train_tiny(run_dir,
                               {"--nproc",
                                "2",
                                "--set",
                                "logging.profiler={start_step: 5, steps: 2, memory: true}",
                                "--set",
                                "train.gradient_accumulation=2"}));
  for (const int rank : {0, 1}) {
    INFO("rank " << rank);
    const Json trace = Json::parse(
        read_file(run_dir / "profile" / fmt::format("step-00000005-rank-{:04}.json", rank)));
    require_nested(trace, rank);
    CHECK(count_of(trace, "step") == 2);
    CHECK(count_of(trace, "data") == 2);
    CHECK(count_of(trace, "forward") == count_of(trace, "backward"));
    CHECK(count_of(trace, "forward") >= 2 * 2 * 3);
    CHECK(count_of(trace, "communication") >= 2 * 3);  // counts, gradients, loss
    CHECK(count_of(trace, "checkpoint") == 1);         // of step 6
    CHECK(count_of(trace, "operation") > 100);
    CHECK(count_of(trace, "", "C") > 0);
  }
  CHECK(count(outcome.err, "profile   steps 5 to 6: ") == 1);
  for (const char* phase : {"data",
                            "forward",
                            "backward",
                            "reduce",
                            "optimizer",
                            "checkpoint",
                            "hooks",
                            "other",
                            "communication"}) {
    CHECK(count(outcome.err, std::string("\n  ") + phase + " ") == 1);
  }
  CHECK(count(outcome.err, "resident memory 0.") == 1);
}

TEST_CASE("a profile shows the gathers and scatters of every stage", "[reporting]") {
  const TempDir folder;
  for (const char* stage : {"1", "2", "3"}) {
    INFO("stage " << stage);
    const fs::path run_dir = folder.path() / stage;
    run_expecting(0,
                  train_tiny(run_dir,
                             {"--nproc",
                              "2",
                              "--set",
                              "logging.profiler={start_step: 3, steps: 2}",
                              "--set",
                              std::string("parallel.zero.stage=") + stage}));
    const Json trace = Json::parse(read_file(run_dir / "profile" / "step-00000003-rank-0000.json"));
    int scatters = 0;
    int gathers = 0;
    for (const Json& event : trace.at("traceEvents")) {
      const std::string name = event.value("name", "");
      scatters += name.starts_with("reduce_scatter") ? 1 : 0;
      gathers += name.starts_with("all_gather") ? 1 : 0;
    }
    CHECK(scatters >= 2);
    CHECK(gathers >= 2);
  }
}

TEST_CASE("profiling does not change the losses", "[reporting]") {
  const TempDir folder;
  run_expecting(0, train_tiny(folder.path() / "a", {"--set", "logging.profiler={start_step: 1}"}));
  run_expecting(0, train_tiny(folder.path() / "b"));
  require_same_losses(folder.path() / "a", folder.path() / "b", 0);
  CHECK(fs::exists(folder.path() / "a" / "profile" / "step-00000001-rank-0000.json"));
}

TEST_CASE("a JSON console shows the records with all their digits", "[reporting][console]") {
  for (const char* processes : {"1", "2"}) {
    const TempDir folder;
    const fs::path run_dir = folder.path() / "run";
    const Outcome outcome = run_expecting(
        0, train_tiny(run_dir, {"--nproc", processes, "--set", "logging.console=json"}));
    std::map<std::string, std::map<int, Json>> shown;
    int logs = 0;
    std::istringstream lines(outcome.err);
    for (std::string line; std::getline(lines, line);) {
      INFO(line);
      const Json object = Json::parse(line);  // every line is one
      const std::string kind = object.at("kind");
      if (kind == "log") {
        ++logs;
        CHECK(object.at("level").is_string());
        CHECK(object.at("rank").is_number_integer());
        CHECK_FALSE(object.at("text").get<std::string>().empty());
      } else {
        shown[kind][object.at("step").get<int>()] = object;
      }
    }
    CHECK(logs > 3);
    CHECK(shown.at("train").size() == 12);
    CHECK(shown.at("train") == records(run_dir));
    CHECK(shown.at("eval") == records(run_dir, "eval"));
    const std::string file = read_file(run_dir / "logs" / "train.log");
    CHECK(count(file, "{\"kind\"") == 0);
    CHECK(count(file, "  gnorm ") == 12);
  }
}

TEST_CASE("a rank that fails says so as an object, and the run ends as ever",
          "[reporting][console]") {
  const TempDir folder;
  const Outcome outcome =
      run(train_tiny(folder.path() / "run", {"--nproc", "2", "--set", "logging.console=json"}),
          with_fault("rank=1,step=3,kind=throw"));
  INFO(outcome.err);
  CHECK(outcome.code != 0);
  bool told = false;
  std::istringstream lines(outcome.err);
  for (std::string line; std::getline(lines, line);) {
    const Json object = line.starts_with("{") ? Json::parse(line) : Json::object();
    told = told || (object.value("level", "") == "error" && object.value("rank", -1) == 1);
  }
  CHECK(told);
}

TEST_CASE("a plain console has no colours, whatever the terminal", "[reporting][console]") {
  const TempDir folder;
  const Arguments failing = {
      "--color", "always", "--set", "train.steps=1", "--set", "scheduler.warmup_steps=1"};
  const Outcome plain = run_expecting(
      0,
      train_tiny(
          folder.path() / "a",
          joined({failing, {"--set", "logging.console=plain", "--set", "eval.every_steps=5"}})));
  CHECK(count(plain.err, "step  1/1") == 1);
  CHECK(count(plain.err.substr(plain.err.find("launch:")), "\x1b[") == 0);
}

TEST_CASE("logging.ranks says which processes keep a log", "[reporting][ranks]") {
  const TempDir folder;
  const auto logs_with = [&](const std::string& name, const std::string& ranks) {
    const fs::path run_dir = folder.path() / name;
    run_expecting(0, train_tiny(run_dir, {"--nproc", "2", "--set", "logging.ranks=" + ranks}));
    CHECK(count(read_file(run_dir / "logs" / "train.log"), "step  12/12") == 1);
    const fs::path own = run_dir / "logs" / "rank-0001.log";
    return fs::exists(own) ? count(read_file(own), "rank 1 of 2 on ") : 0;
  };
  CHECK(logs_with("zero", "zero") == 0);
  CHECK(logs_with("first", "[0]") == 0);
  CHECK(logs_with("all", "all") == 1);
  CHECK(logs_with("second", "[1]") == 1);
  const Outcome outcome = run_expecting(
      3, train_tiny(folder.path() / "bad", {"--nproc", "2", "--set", "logging.ranks=[0, 2]"}));
  CHECK(count(outcome.err, "logging.ranks names rank 2, but the run has 2 processes") == 1);
}

TEST_CASE("reports that are off leave no files", "[reporting]") {
  const TempDir folder;
  run_expecting(0, train_tiny(folder.path() / "run", {"--set", "logging.tensorboard=false"}));
  CHECK_FALSE(fs::exists(folder.path() / "run" / "tensorboard"));
  CHECK_FALSE(fs::exists(folder.path() / "run" / "metrics.csv"));
  CHECK_FALSE(fs::exists(folder.path() / "run" / "profile"));
}
