// How are measurements told?
#include "train/bench/report.hpp"

#include "train/human.hpp"
#include "train/table.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace colossal {
namespace {

/// What a rate is called, and what it is divided by for people.
struct UnitText {
  const char* json;
  const char* text;
  double divisor;
};

UnitText text_of(BenchUnit unit) {
  constexpr double kBillion = 1e9;
  constexpr double kTrillion = 1e12;
  switch (unit) {
    case BenchUnit::bytes:
      return {"bytes", "GB/s", kBillion};
    case BenchUnit::flops:
      return {"flop", "TFLOP/s", kTrillion};
    case BenchUnit::elements:
      return {"elements", "G elements/s", kBillion};
    case BenchUnit::tokens:
      return {"tokens", "tokens/s", 1};
  }
  return {"", "", 1};
}

std::string rate_text(const BenchRow& row) {
  const UnitText unit = text_of(row.unit);
  const double rate = row.rate() / unit.divisor;
  constexpr double kWhole = 100;  // three digits without a point
  return rate >= kWhole || row.unit == BenchUnit::tokens
             ? fmt::format("{} {}", thousands(std::llround(rate)), unit.text)
             : fmt::format("{:.3g} {}", rate, unit.text);
}

/// "1.23 us", "12.3 ms", "1.23 s".
std::string seconds_text(double seconds) {
  constexpr double kThousand = 1e3;
  constexpr double kMillion = 1e6;
  if (seconds < 1 / kThousand) {
    return fmt::format("{:.4g} us", seconds * kMillion);
  }
  return seconds < 1 ? fmt::format("{:.4g} ms", seconds * kThousand)
                     : fmt::format("{:.4g} s", seconds);
}

}  // namespace

std::string to_text(const BenchReport& report) {
  std::vector<TableRow> table = {{"what", "size", "median", "least", "spread", "rate", "of copy"}};
  for (const BenchRow& row : report.rows) {
    table.push_back({row.part + ": " + row.name,
                     row.size,
                     seconds_text(row.time.median),
                     seconds_text(row.time.least),
                     fmt::format("{:.0f}%", 100 * row.time.spread),
                     rate_text(row),
                     row.of_copy ? fmt::format("{:.0f}%", 100 * *row.of_copy) : "-"});
  }
  return fmt::format("bench on {}; {}, {} process{} of {} thread{}; build {}\n{}",
                     report.device,
                     report.precision,
                     report.processes,
                     report.processes == 1 ? "" : "es",
                     report.threads,
                     report.threads == 1 ? "" : "s",
                     report.build,
                     to_table(table));
}

std::string to_json(const BenchReport& report) {
  nlohmann::ordered_json json = {{"build", report.build},
                                 {"device", report.device},
                                 {"precision", report.precision},
                                 {"threads", report.threads},
                                 {"processes", report.processes},
                                 {"rows", nlohmann::ordered_json::array()}};
  for (const BenchRow& row : report.rows) {
    json["rows"].push_back({{"part", row.part},
                            {"name", row.name},
                            {"size", row.size},
                            {"median_seconds", row.time.median},
                            {"least_seconds", row.time.least},
                            {"spread", row.time.spread},
                            {"samples", row.time.samples},
                            {"calls", row.time.calls},
                            {"unit", text_of(row.unit).json},
                            {"amount", row.amount},
                            {"rate", row.rate()}});
    if (row.of_copy) {
      json["rows"].back()["of_copy"] = *row.of_copy;
    }
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace colossal
