// Do the reports of a run say the same as metrics.jsonl, also after it was killed and resumed?
#include "e2e/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <sstream>

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

TEST_CASE("reports that are off leave no files", "[reporting]") {
  const TempDir folder;
  run_expecting(0, train_tiny(folder.path() / "run", {"--set", "logging.tensorboard=false"}));
  CHECK_FALSE(fs::exists(folder.path() / "run" / "tensorboard"));
  CHECK_FALSE(fs::exists(folder.path() / "run" / "metrics.csv"));
  CHECK_FALSE(fs::exists(folder.path() / "run" / "profile"));
}
