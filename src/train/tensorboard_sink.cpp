// How is an event encoded? Protocol buffers by hand: three wire types are all that it needs.
#include "train/tensorboard_sink.hpp"

#include "core/hash.hpp"
#include "core/system.hpp"
#include "train/environment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unistd.h>
#include <utility>

namespace colossal {
namespace {

static_assert(std::endian::native == std::endian::little, "records are little-endian");

constexpr std::string_view kPrefix = "events.out.tfevents.";

/// Field numbers of the messages.
constexpr unsigned kEventWallTime = 1;
constexpr unsigned kEventStep = 2;
constexpr unsigned kEventFileVersion = 3;
constexpr unsigned kEventSummary = 5;
constexpr unsigned kEventSessionLog = 7;
constexpr unsigned kSummaryValue = 1;
constexpr unsigned kValueTag = 1;
constexpr unsigned kValueSimple = 2;
constexpr unsigned kSessionStatus = 1;
constexpr std::uint64_t kSessionStart = 1;

/// How a field's bytes follow its key.
enum class Wire : unsigned { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

/// A protocol buffer message under construction.
class MessageBuilder {
 public:
  void number(unsigned field, std::uint64_t value) {
    key(field, Wire::varint);
    varint(value);
  }
  void real(unsigned field, double value) {
    key(field, Wire::fixed64);
    raw(value);
  }
  void real32(unsigned field, float value) {
    key(field, Wire::fixed32);
    raw(value);
  }
  void bytes(unsigned field, std::string_view value) {
    key(field, Wire::bytes);
    varint(value.size());
    text_ += value;
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void key(unsigned field, Wire wire) { varint(field << 3U | static_cast<unsigned>(wire)); }
  void varint(std::uint64_t value) {
    constexpr std::uint64_t kMore = 0x80;
    for (; value >= kMore; value >>= 7U) {
      text_ += static_cast<char>((value & (kMore - 1)) | kMore);
    }
    text_ += static_cast<char>(value);
  }
  template <class T>
  void raw(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  std::string text_;
};

std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(std::as_bytes(std::span(bytes))), 15) + 0xA282EAD8U;
}

/// Seconds in the name of the new file. TensorBoard reads files by name: a start within the same
/// second, or after the clock was set back, must not come before what it follows.
std::int64_t stamp(const std::filesystem::path& folder) {
  auto stamp = static_cast<std::int64_t>(unix_time());
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    std::int64_t old = 0;
    if (name.starts_with(kPrefix) &&
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), old).ec ==
            std::errc()) {
      stamp = std::max(stamp, old + 1);
    }
  }
  return stamp;
}

std::filesystem::path new_name(const std::filesystem::path& folder) {
  return folder / fmt::format("{}{:010}.{}.{}", kPrefix, stamp(folder), host_name(), ::getpid());
}

MessageBuilder event(double wall_time, std::int64_t step) {
  MessageBuilder event;
  event.real(kEventWallTime, wall_time);
  event.number(kEventStep, static_cast<std::uint64_t>(step));
  return event;
}

}  // namespace

std::string tfrecord(std::string_view payload) {
  const auto bytes_of = [](const auto& value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const std::string length = bytes_of(std::uint64_t{payload.size()});
  std::string record = length + bytes_of(masked_crc(length));
  record += payload;
  return record + bytes_of(masked_crc(payload));
}

EventFile::EventFile(const std::filesystem::path& folder, std::int64_t first_step)
    : file_(new_name(folder)) {
  const double now = unix_time();
  MessageBuilder version;
  version.real(kEventWallTime, now);
  version.bytes(kEventFileVersion, "brain.Event:2");
  MessageBuilder session;
  session.number(kSessionStatus, kSessionStart);
  MessageBuilder start = event(now, first_step);
  start.bytes(kEventSessionLog, session.text());
  file_.append(tfrecord(version.text()) + tfrecord(start.text()));
}

void EventFile::write(double wall_time, std::int64_t step, std::span<const Scalar> scalars) {
  MessageBuilder summary;
  for (const Scalar& scalar : scalars) {
    MessageBuilder value;
    value.bytes(kValueTag, scalar.tag);
    value.real32(kValueSimple, scalar.value);
    summary.bytes(kSummaryValue, value.text());
  }
  MessageBuilder message = event(wall_time, step);
  message.bytes(kEventSummary, summary.text());
  file_.append(tfrecord(message.text()));
}

std::vector<Scalar> scalars_of(const MetricRecord& record) {
  const auto kind = record.at("kind").get<std::string>();
  std::vector<Scalar> scalars;
  for (const auto& [key, value] : record.items()) {
    if (value.is_number() && key != "t" && key != "attempt" && key != "step") {
      scalars.push_back({kind + "/" + key, value.get<float>()});
    }
  }
  return scalars;
}

TensorboardSink::TensorboardSink(std::filesystem::path folder) : folder_(std::move(folder)) {}

void TensorboardSink::begin(std::int64_t step) {
  file_.emplace(folder_, step == 0 ? 0 : step + 1);  // the point of the checkpoint's step stays
}

void TensorboardSink::write(const MetricRecord& record) {
  const std::vector<Scalar> scalars = scalars_of(record);
  if (file_ && !scalars.empty()) {
    file_->write(record.at("t").get<double>(), record.at("step").get<std::int64_t>(), scalars);
  }
}

}  // namespace colossal
