// What does TensorBoard see of a run? Event files, written without Python (config-and-cli 9).
#pragma once

#include "train/append_file.hpp"
#include "train/metric_sinks.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace colossal {

/// One point of a curve.
struct Scalar {
  std::string tag;  ///< "train/loss"
  float value = 0;
};

/// One event file. Source: TensorFlow's record framing and the messages Event, Summary and
/// SessionLog of its event.proto and summary.proto.
class EventFile {
 public:
  /// A new file in `folder`, named so that TensorBoard reads it after those that are there.
  /// TensorBoard drops the points of `first_step` and later that they hold.
  EventFile(const std::filesystem::path& folder, std::int64_t first_step);

  /// Adds points of one step, taken at `wall_time` (seconds since 1970); on disk when this returns.
  void write(double wall_time, std::int64_t step, std::span<const Scalar> scalars);

 private:
  AppendFile file_;
};

/// Payload with its length and checksums, as event files hold it.
[[nodiscard]] std::string tfrecord(std::string_view payload);

/// Points of a record: every number but time, attempt and step, tagged KIND/FIELD.
[[nodiscard]] std::vector<Scalar> scalars_of(const MetricRecord& record);

/// The records of a run as TensorBoard's curves, one event file a process.
class TensorboardSink : public MetricSink {
 public:
  explicit TensorboardSink(std::filesystem::path folder);
  void begin(std::int64_t step) override;
  void write(const MetricRecord& record) override;

 private:
  std::filesystem::path folder_;
  std::optional<EventFile> file_;
};

}  // namespace colossal
