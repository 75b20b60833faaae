// What does metrics.csv hold?
#pragma once

#include "train/append_file.hpp"
#include "train/metric_sinks.hpp"

#include <string>
#include <string_view>

namespace colossal {

/// The header line of metrics.csv, without its newline: a column for every field of every kind of
/// record (schemas/metrics.md).
[[nodiscard]] std::string csv_header();

/// A record as a line of the table, without its newline. Fields that its kind does not have, and
/// numbers that are not finite, are empty.
[[nodiscard]] std::string csv_line(const MetricRecord& record);

/// What remains of `table` for a run that goes on after `step`: rows of later steps go (at step 0
/// all), so does a partial last line; columns of another version of the program are put in place by
/// their names. Begins with csv_header() and ends with a newline.
[[nodiscard]] std::string csv_continued(std::string_view table, std::int64_t step);

/// metrics.csv: train and eval records as one table for spreadsheets and plots.
class CsvSink : public MetricSink {
 public:
  explicit CsvSink(RunDir& run_dir);
  void begin(std::int64_t step) override;
  void write(const MetricRecord& record) override;

 private:
  RunDir& run_dir_;
  AppendFile file_;
};

}  // namespace colossal
