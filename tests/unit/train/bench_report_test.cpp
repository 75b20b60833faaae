// Do people and programs read the same measurements?
#include "support/catch.hpp"
#include "train/bench/report.hpp"

#include <nlohmann/json.hpp>
#include <string>

namespace colossal {
namespace {

using Json = nlohmann::json;

BenchRow row(double seconds, double amount, BenchUnit unit) {
  return {
      .part = "kernels",
      .name = "layer norm",
      .size = "8 x 16",
      .time = {.median = seconds, .least = seconds / 2, .spread = 0.126, .samples = 9, .calls = 4},
      .amount = amount,
      .unit = unit};
}

BenchReport report_of(const BenchRow& row) {
  return {.build = "0.1.0+abc",
          .device = "cpu",
          .precision = "fp32",
          .threads = 2,
          .processes = 1,
          .rows = {row}};
}

/// The line of the only row.
std::string line_of(const BenchRow& row) {
  const std::string text = to_text(report_of(row));
  const std::size_t last = text.rfind('\n', text.size() - 2);
  return text.substr(last + 1, text.size() - last - 2);
}

TEST_CASE("a rate is the amount by the median time", "[bench][report]") {
  CHECK(row(0.5, 3, BenchUnit::bytes).rate() == 6);
  CHECK(row(0, 3, BenchUnit::bytes).rate() == 0);  // a clock that did not move is no infinite rate
}

TEST_CASE("every unit has its own scale", "[bench][report]") {
  CHECK(line_of(row(1, 2.5e9, BenchUnit::bytes)).find("  2.5 GB/s") != std::string::npos);
  CHECK(line_of(row(1, 2.5e12, BenchUnit::flops)).find("  2.5 TFLOP/s") != std::string::npos);
  CHECK(line_of(row(1, 2.5e9, BenchUnit::elements)).find("  2.5 G elements/s") !=
        std::string::npos);
  CHECK(line_of(row(1, 2940e9, BenchUnit::bytes)).find("  2,940 GB/s") != std::string::npos);
  CHECK(line_of(row(1, 1234567.8, BenchUnit::tokens)).find("  1,234,568 tokens/s") !=
        std::string::npos);
}

TEST_CASE("times are told in the unit that suits them", "[bench][report]") {
  CHECK(line_of(row(2.5e-7, 1, BenchUnit::bytes)).find(" 0.25 us") != std::string::npos);
  CHECK(line_of(row(1.5e-4, 1, BenchUnit::bytes)).find(" 150 us") != std::string::npos);
  CHECK(line_of(row(0.0025, 1, BenchUnit::bytes)).find(" 2.5 ms") != std::string::npos);
  CHECK(line_of(row(75, 1, BenchUnit::bytes)).find(" 75 s") != std::string::npos);
}

TEST_CASE("a row says what, how large, how long, how steady and how fast", "[bench][report]") {
  BenchRow measured = row(0.002, 4e6, BenchUnit::bytes);
  CHECK(line_of(measured) == "kernels: layer norm  8 x 16    2 ms   1 ms     13%  2 GB/s        -");
  measured.of_copy = 0.756;
  CHECK(line_of(measured).ends_with("76%"));
}

TEST_CASE("the first line says where", "[bench][report]") {
  BenchReport report = report_of(row(1, 1, BenchUnit::bytes));
  CHECK(
      to_text(report).starts_with("bench on cpu; fp32, 1 process of 2 threads; build 0.1.0+abc\n"));
  report.processes = 4;
  report.threads = 1;
  CHECK(to_text(report).find(" 4 processes of 1 thread;") != std::string::npos);
}

TEST_CASE("programs get base units and everything that was measured", "[bench][report]") {
  BenchRow measured = row(0.002, 4e6, BenchUnit::flops);
  Json json = Json::parse(to_json(report_of(measured)));
  CHECK(json["device"] == "cpu");
  CHECK(json["threads"] == 2);
  CHECK(json["rows"][0]["rate"] == 2e9);
  CHECK(json["rows"][0]["unit"] == "flop");
  CHECK(json["rows"][0]["median_seconds"] == 0.002);
  CHECK(json["rows"][0]["least_seconds"] == 0.001);
  CHECK(json["rows"][0]["samples"] == 9);
  CHECK(json["rows"][0]["calls"] == 4);
  CHECK_FALSE(json["rows"][0].contains("of_copy"));
  measured.of_copy = 0.5;
  json = Json::parse(to_json(report_of(measured)));
  CHECK(json["rows"][0]["of_copy"] == 0.5);
}

TEST_CASE("a device's name cannot break the JSON", "[bench][report]") {
  BenchReport report = report_of(row(1, 1, BenchUnit::tokens));
  report.device = "a \"quoted\"\n\xff name";
  CHECK_NOTHROW(Json::parse(to_json(report)));
}

}  // namespace
}  // namespace colossal
