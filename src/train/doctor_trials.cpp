// What does `doctor` try out for real? A checkpoint, and the sum of a tensor over several
// processes.
#include "checkpoint/checkpoint.hpp"
#include "core/error.hpp"
#include "train/doctor.hpp"
#include "train/human.hpp"
#include "train/stopwatch.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <unistd.h>

namespace colossal {
namespace {

/// A folder that goes with the object.
class Scratch {
 public:
  Scratch()
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("colossal-doctor-{}", ::getpid())) {}
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

constexpr std::int64_t kNumbers = std::int64_t{1} << 20;

std::vector<TensorRecord> whole(at::Tensor& tensor) {
  return {TensorRecord{.name = "model/probe",
                       .global = {kNumbers},
                       .local = tensor,
                       .regions = {Region{{0}, {0}, {kNumbers}}}}};
}

}  // namespace

Finding check_checkpoints() {
  constexpr const char* kTopic = "checkpoint";
  try {
    const Scratch scratch;
    const Comm alone;
    RunState state;
    state.step = 1;
    at::Tensor written = at::arange(kNumbers, at::kFloat);
    at::Tensor read = at::zeros_like(written);
    const Stopwatch saving;
    const std::int64_t bytes = save_checkpoint(scratch.path(), state, whole(written), alone, {});
    const double save_seconds = saving.seconds();
    const Stopwatch loading;
    std::vector<TensorRecord> records = whole(read);
    load_tensors(find_checkpoint(scratch.path()), records, alone);
    const double load_seconds = loading.seconds();
    if (!at::equal(written, read)) {
      return {kTopic,
              Verdict::fail,
              "what was read back differs from what was written",
              "check memory and disk of this machine"};
    }
    return {kTopic,
            Verdict::ok,
            fmt::format("{} written in {:.0f} ms and read back in {:.0f} ms",
                        human_bytes(static_cast<double>(bytes)),
                        1000 * save_seconds,
                        1000 * load_seconds)};
  } catch (const std::exception& error) {
    const std::string_view text = error.what();
    return {kTopic,
            Verdict::fail,
            std::string(text.substr(0, text.find('\n'))),
            "choose another TMPDIR, or free some space there"};
  }
}

std::string to_json(const NetworkTest& test) {
  return nlohmann::json{{"num_ranks", test.num_ranks},
                        {"bytes", test.bytes},
                        {"seconds", test.seconds},
                        {"latency_seconds", test.latency_seconds},
                        {"correct", test.correct}}
      .dump();
}

Finding judge_network(int num_ranks, int exit_code, const std::string& test) {
  constexpr const char* kTopic = "network";
  const nlohmann::json json = nlohmann::json::parse(test, nullptr, /*allow_exceptions=*/false);
  if (exit_code != 0 || !json.is_object()) {
    return {kTopic,
            Verdict::fail,
            fmt::format(
                "the all-reduce over {} processes ended with exit code {}", num_ranks, exit_code),
            "the processes said above what stopped them"};
  }
  if (!json.value("correct", false)) {
    return {kTopic,
            Verdict::fail,
            fmt::format("the all-reduce over {} processes gave wrong sums", num_ranks),
            "check the memory of this machine and the versions of LibTorch"};
  }
  if (num_ranks == 1) {
    return {kTopic, Verdict::ok, "not tried: one process has nobody to talk to"};
  }
  const auto bytes = json.value("bytes", 0.0);
  const auto seconds = json.value("seconds", 0.0);
  return {
      kTopic,
      Verdict::ok,
      fmt::format("all-reduce of {:.0f} MiB over {} processes (gloo): {:.1f} ms, {:.2f} GB/s; of "
                  "one number: {:.0f} us",
                  bytes / (1 << 20),
                  num_ranks,
                  1000 * seconds,
                  seconds > 0 ? bytes / seconds * 1e-9 : 0,
                  1e6 * json.value("latency_seconds", 0.0))};
}

}  // namespace colossal
