// Is metrics.csv a whole table, and does a resumed run leave no rows of lost work in it?
#include "train/csv_sink.hpp"

#include "core/system.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "train/run_dir.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace colossal::test {
namespace {

MetricRecord record(const std::string& kind, int step, double loss) {
  return {{"t", 1.5}, {"attempt", 1}, {"kind", kind}, {"step", step}, {"loss", loss}};
}

std::vector<std::string> fields_of(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) {
    parts.push_back(part);
  }
  return parts;
}

/// The cell of `column` in a line of the table.
std::string cell(const std::string& line, const std::string& column) {
  const std::vector<std::string> columns = fields_of(csv_header(), ',');
  const auto found = std::find(columns.begin(), columns.end(), column);
  REQUIRE(found != columns.end());
  const std::vector<std::string> cells = fields_of(line + ",.", ',');  // keeps a last empty cell
  REQUIRE(cells.size() == columns.size() + 1);
  return cells[static_cast<std::size_t>(found - columns.begin())];
}

/// A table of these rows, as a run writes it.
std::string table(const std::vector<MetricRecord>& records) {
  std::string text = csv_header() + "\n";
  for (const MetricRecord& one : records) {
    text += csv_line(one) + "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("a row holds each field in its column, with all digits", "[csv]") {
  const double loss = 1.0 / 3 + 1e-16;
  MetricRecord one = record("train", 12, loss);
  one["clipped"] = true;
  one["data_hash"] = "00ff";
  one["mem_peak"] = std::int64_t{1} << 40;
  const std::string line = csv_line(one);
  CHECK(cell(line, "kind") == "train");
  CHECK(cell(line, "step") == "12");
  CHECK(std::stod(cell(line, "loss")) == loss);
  CHECK(cell(line, "clipped") == "true");
  CHECK(cell(line, "data_hash") == "00ff");
  CHECK(cell(line, "mem_peak") == "1099511627776");
  CHECK(cell(line, "ppl").empty());
  CHECK(cell(line, "seconds").empty());
}

TEST_CASE("numbers that are not finite are empty cells", "[csv]") {
  CHECK(
      cell(csv_line(record("train", 1, std::numeric_limits<double>::quiet_NaN())), "loss").empty());
  CHECK(
      cell(csv_line(record("train", 1, std::numeric_limits<double>::infinity())), "loss").empty());
}

TEST_CASE("continuing after a step drops the rows of later steps", "[csv]") {
  const std::string whole = table({record("train", 1, 3),
                                   record("eval", 10, 2),
                                   record("train", 10, 2),
                                   record("train", 20, 1),
                                   record("eval", 20, 1)});
  const std::string upto10 =
      table({record("train", 1, 3), record("eval", 10, 2), record("train", 10, 2)});
  CHECK(csv_continued(whole, 10) == upto10);
  CHECK(csv_continued(whole, 19) == upto10);
  CHECK(csv_continued(whole, 20) == whole);
  CHECK(csv_continued(whole, 0) == csv_header() + "\n");
}

TEST_CASE("a torn last row and rows that are none are dropped", "[csv]") {
  const std::string good = table({record("train", 1, 3)});
  CHECK(csv_continued(good + "1.5,1,tra", 5) == good);
  CHECK(csv_continued(good + csv_line(record("train", 2, 3)), 5) == good);  // no newline: torn
  CHECK(csv_continued(good + "what is this\n", 5) == good);
  CHECK(csv_continued("", 5) == csv_header() + "\n");
  CHECK(csv_continued("no newline at all", 5) == csv_header() + "\n");
}

TEST_CASE("the columns of another version keep their names", "[csv]") {
  const std::string old = "step,loss,kind,forgotten\n4,2.5,train,x\n9,1.5,train,y\n";
  const std::vector<std::string> lines = fields_of(csv_continued(old, 5), '\n');
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == csv_header());
  CHECK(cell(lines[1], "step") == "4");
  CHECK(cell(lines[1], "loss") == "2.5");
  CHECK(cell(lines[1], "kind") == "train");
  CHECK(cell(lines[1], "t").empty());
}

TEST_CASE("a file that is no table is kept aside, not replaced", "[csv]") {
  const TempDir folder;
  const auto run_dir = RunDir::open(folder.path(), 0);
  run_dir->write("metrics.csv", "my notes\nof this run\n");
  CsvSink sink(*run_dir);
  sink.begin(1);
  sink.write(record("train", 2, 2.5));
  CHECK(read_text(folder.path() / "metrics.csv") == table({record("train", 2, 2.5)}));
  CHECK(read_text(folder.path() / "metrics.csv.unreadable") == "my notes\nof this run\n");
}

TEST_CASE("the sink continues its own file", "[csv]") {
  const TempDir folder;
  {
    const auto run_dir = RunDir::open(folder.path(), 0);
    CsvSink sink(*run_dir);
    sink.begin(0);
    sink.write(record("train", 1, 3));
    sink.write(record("train", 2, 2));
    sink.write(record("resume", 2, 2));  // not a measurement
  }
  const auto run_dir = RunDir::open(folder.path(), 0);
  CsvSink sink(*run_dir);
  sink.begin(1);
  sink.write(record("train", 2, 2.5));
  CHECK(read_text(folder.path() / "metrics.csv") ==
        table({record("train", 1, 3), record("train", 2, 2.5)}));
}

}  // namespace colossal::test
