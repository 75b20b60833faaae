// How do records become rows, and what happens to rows of lost work?
#include "train/csv_sink.hpp"

#include "core/log.hpp"
#include "core/system.hpp"
#include "train/run_dir.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <vector>

namespace colossal {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "metrics.csv";
constexpr std::array<std::string_view, 29> kColumns = {
    "t",          "attempt",      "kind",          "step",       "epoch",
    "samples",    "tokens",       "loss",          "ppl",        "lr",
    "grad_norm",  "clipped",      "loss_scale",    "skipped",    "step_time",
    "data_time",  "tokens_per_s", "mem_peak",      "data_hash",  "batches",
    "seconds",    "device_peak",  "gathered_peak", "host_bytes", "pinned_bytes",
    "nvme_bytes", "accuracy",     "host_time",     "batch_size"};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (const auto part : std::views::split(text, separator)) {
    parts.emplace_back(part.begin(), part.end());
  }
  return parts;
}

std::string join(const std::vector<std::string_view>& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    line += i == 0 ? "" : ",";
    line += cells[i];
  }
  return line;
}

/// The cells of a row by today's columns; empty where the row's table has no such column.
std::vector<std::string_view> in_our_order(const std::vector<std::string_view>& cells,
                                           const std::vector<std::string_view>& columns) {
  std::vector<std::string_view> ours;
  for (const std::string_view column : kColumns) {
    const auto found = std::ranges::find(columns, column);
    ours.push_back(found == columns.end()
                       ? std::string_view()
                       : cells[static_cast<std::size_t>(found - columns.begin())]);
  }
  return ours;
}

/// Step of a row in today's columns; unset if it is no number.
std::optional<std::int64_t> step_of(const std::vector<std::string_view>& cells) {
  constexpr std::size_t kStep = 3;
  std::int64_t step = 0;
  const std::string_view text = cells[kStep];
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(step)
                                                                  : std::nullopt;
}

/// Whether a file begins with the header of some version's table.
bool is_table(std::string_view text) {
  const std::vector<std::string_view> columns = split(text.substr(0, text.find('\n')), ',');
  return std::ranges::find(columns, "step") != columns.end();
}

}  // namespace

std::string csv_header() {
  return join({kColumns.begin(), kColumns.end()});
}

std::string csv_line(const MetricRecord& record) {
  std::string line;
  for (std::size_t i = 0; i < kColumns.size(); ++i) {
    line += i == 0 ? "" : ",";
    const auto field = record.find(kColumns[i]);
    if (field == record.end() || field->is_null() ||
        (field->is_number_float() && !std::isfinite(field->get<double>()))) {
      continue;
    }
    line += field->is_string() ? field->get<std::string>() : field->dump();
  }
  return line;
}

std::string csv_continued(std::string_view table, std::int64_t step) {
  std::string kept = csv_header() + "\n";
  table = table.substr(0, table.rfind('\n') + 1);  // npos + 1 = 0: nothing is whole
  const std::vector<std::string_view> lines = split(table, '\n');
  if (step == 0 || lines.empty()) {
    return kept;
  }
  const std::vector<std::string_view> columns = split(lines.front(), ',');
  for (const std::string_view line : lines | std::views::drop(1)) {
    const std::vector<std::string_view> cells = split(line, ',');
    if (cells.size() != columns.size()) {
      continue;
    }
    const std::vector<std::string_view> ours = in_our_order(cells, columns);
    if (const auto row_step = step_of(ours); row_step && *row_step <= step) {
      kept += join(ours) + "\n";
    }
  }
  return kept;
}

CsvSink::CsvSink(RunDir& run_dir) : run_dir_(run_dir), file_(run_dir.path() / kName) {}

void CsvSink::begin(std::int64_t step) {
  std::error_code error;
  const bool there = fs::exists(file_.path(), error) && fs::file_size(file_.path(), error) > 0;
  if (there && !is_table(read_text(file_.path()))) {
    const fs::path aside = file_.path().string() + ".unreadable";
    fs::rename(file_.path(), aside, error);
    log::warn("[run] {} is no table of metrics: it begins anew, and the old file is {}",
              file_.path().string(),
              aside.string());
  }
  run_dir_.update(kName, csv_continued(read_text(file_.path()), step));
}

void CsvSink::write(const MetricRecord& record) {
  if (record.at("kind") != "resume") {
    file_.append(csv_line(record) + "\n");
  }
}

}  // namespace colossal
