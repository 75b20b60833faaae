// Are event files what TensorBoard's own writer would have written?
#include "train/tensorboard_sink.hpp"

#include "core/system.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace colossal::test {
namespace {

namespace fs = std::filesystem;

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

/// Event files of a folder in the order in which TensorBoard reads them.
std::vector<fs::path> event_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Payloads of an event file; fails the test unless their frames fill it.
std::vector<std::string> payloads(const std::string& bytes) {
  constexpr std::size_t kHead = 12;
  constexpr std::size_t kTail = 4;
  std::vector<std::string> found;
  std::size_t at = 0;
  while (at < bytes.size()) {
    REQUIRE(at + kHead <= bytes.size());
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    REQUIRE(at + kHead + length + kTail <= bytes.size());
    found.push_back(bytes.substr(at + kHead, length));
    CHECK(tfrecord(found.back()) == bytes.substr(at, kHead + length + kTail));
    at += kHead + length + kTail;
  }
  return found;
}

MetricRecord train_record(int step, double loss) {
  return {{"t", 1764288000.25}, {"attempt", 1}, {"kind", "train"}, {"step", step}, {"loss", loss}};
}

}  // namespace

TEST_CASE("an event has the bytes that the tensorboard package 2.21 writes", "[tensorboard]") {
  const TempDir folder;
  EventFile file(folder.path(), 0);
  const fs::path path = event_files(folder.path()).at(0);
  const std::string before = read_text(path);
  const std::vector<Scalar> scalars = {{"train/loss", 2.5F}, {"train/lr", 0.001F}};
  file.write(1764288000.25, 300, scalars);
  CHECK(
      hex(read_text(path).substr(before.size())) ==
      "3200000000000000241956ec0900001080394ada4110ac022a240a110a0a747261696e2f6c6f737315000020400a"
      "0f0a08747261696e2f6c72156f12833a11f7e071");
}

TEST_CASE("an event file starts with its version and the step it goes on from", "[tensorboard]") {
  const TempDir folder;
  const EventFile file(folder.path(), 300);
  const std::vector<std::string> events = payloads(read_text(event_files(folder.path()).at(0)));
  REQUIRE(events.size() == 2);
  CHECK(events[0].substr(9) ==
        "\x1a\x0d"
        "brain.Event:2");                               // after the wall time
  CHECK(hex(events[1].substr(9)) == "10ac023a020801");  // step 300, session_log {status START}
}

TEST_CASE("files of one second, and after a clock set back, are read in order", "[tensorboard]") {
  const TempDir folder;
  const fs::path future = folder.path() / "events.out.tfevents.9000000000.host.1";
  std::ofstream(future) << "";
  for (std::int64_t step = 1; step <= 3; ++step) {
    const EventFile file(folder.path(), step);
    const std::vector<fs::path> files = event_files(folder.path());
    REQUIRE(files.size() == static_cast<std::size_t>(step) + 1);
    CHECK(hex(payloads(read_text(files.back())).at(1))
              .ends_with(fmt::format("10{:02x}3a020801", step)));
  }
}

TEST_CASE("every measured number of a record is a point", "[tensorboard]") {
  MetricRecord record = train_record(7, 2.5);
  record["lr"] = 1e-3;
  record["clipped"] = true;
  record["data_hash"] = "00ff";
  record["skipped"] = 3;
  record["grad_norm"] = nullptr;
  const std::vector<Scalar> scalars = scalars_of(record);
  REQUIRE(scalars.size() == 3);
  CHECK(scalars[0].tag == "train/loss");
  CHECK(scalars[0].value == 2.5F);
  CHECK(scalars[1].tag == "train/lr");
  CHECK(scalars[2].tag == "train/skipped");
  CHECK(scalars[2].value == 3.0F);
  CHECK(scalars_of({{"t", 1.0}, {"attempt", 2}, {"kind", "resume"}, {"step", 4}}).empty());
  CHECK(std::isnan(
      scalars_of(train_record(1, std::numeric_limits<double>::quiet_NaN())).at(0).value));
}

TEST_CASE("the sink starts after the checkpoint's step and writes at once", "[tensorboard]") {
  const TempDir folder;
  TensorboardSink sink(folder.path() / "tensorboard");
  sink.begin(4);
  const fs::path path = event_files(folder.path() / "tensorboard").at(0);
  CHECK(hex(payloads(read_text(path)).at(1)).ends_with("10053a020801"));
  sink.write(train_record(5, 2.5));
  CHECK(payloads(read_text(path)).size() == 3);  // without closing the file
  sink.write({{"t", 1.0}, {"attempt", 2}, {"kind", "resume"}, {"step", 4}});
  CHECK(payloads(read_text(path)).size() == 3);
}

TEST_CASE("a folder that cannot be written ends nothing", "[tensorboard]") {
  const TempDir folder;
  std::ofstream(folder.path() / "tensorboard") << "a file where a folder should be";
  TensorboardSink sink(folder.path() / "tensorboard");
  CHECK_NOTHROW(sink.begin(0));
  CHECK_NOTHROW(sink.write(train_record(1, 2.5)));
  CHECK(read_text(folder.path() / "tensorboard") == "a file where a folder should be");
}

}  // namespace colossal::test
