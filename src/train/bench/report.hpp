// How are measurements told? One row each, as a table or as JSON.
#pragma once

#include "train/bench/timing.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace colossal {

/// What a call does an amount of; its rate is printed in 10^9 bytes, 10^12 FLOP, 10^9 elements or
/// whole tokens (rows of a classifier) a second.
enum class BenchUnit : std::uint8_t { bytes, flops, elements, tokens };

/// One measurement.
struct BenchRow {
  std::string part;  ///< "kernels"
  std::string name;  ///< "layer norm"
  std::string size;  ///< "1024 x 256"
  Timing time;
  double amount = 0;  ///< of `unit` in one call
  BenchUnit unit = BenchUnit::bytes;
  std::optional<double> of_copy = {};  ///< the rate as a share of that of a copy on the device
  /// Amount a second, by the median.
  [[nodiscard]] double rate() const { return time.median > 0 ? amount / time.median : 0; }
};

/// All measurements of one start, and where they took place.
struct BenchReport {
  std::string build;
  std::string device;  ///< "cpu", "cuda:0, NVIDIA H100 80GB HBM3, 79.2 GiB"
  std::string precision;
  int threads = 1;
  int processes = 1;
  std::vector<BenchRow> rows;
};

/// A table below a line that says where.
[[nodiscard]] std::string to_text(const BenchReport& report);
/// One object; seconds and rates in base units.
[[nodiscard]] std::string to_json(const BenchReport& report);

}  // namespace colossal
