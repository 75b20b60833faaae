// What does a run leave behind? The run directory of config-and-cli section 9.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "config/config.hpp"

namespace colossal {

/// Owner of runs/NAME on rank 0: lock, config copies, plan.json, env.json, status.json, metrics.jsonl.
class RunDir {
 public:
  /// Creates the folder if needed and takes run.lock (waits up to 5 s for a dying predecessor).
  /// Errors: config "output-in-use" (host and pid of the holder), config "output-not-writable", config "disk-low".
  static std::unique_ptr<RunDir> open(const std::filesystem::path& folder, std::int64_t checkpoint_bytes);
  ~RunDir();
  RunDir(const RunDir&) = delete;
  RunDir& operator=(const RunDir&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  /// How often this directory was started, this time included (1 for a new run).
  [[nodiscard]] std::int64_t attempt() const noexcept { return attempt_; }

  /// Atomically replaces a small file of the run directory.
  void write(const std::string& name, const std::string& text) const;
  /// Appends one JSON object as a line to metrics.jsonl and flushes.
  void append_metrics(const std::string& json_line);

 private:
  RunDir(std::filesystem::path path, int lock);
  std::filesystem::path path_;
  int lock_;
  std::int64_t attempt_ = 1;
  int metrics_ = -1;
};

/// Probes that `folder` can be written without leaving anything but the folder. Errors as RunDir::open.
void check_writable(const std::filesystem::path& folder, std::int64_t needed_bytes);

}  // namespace colossal
