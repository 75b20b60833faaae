// What does a run leave behind? The run directory of config-and-cli section 9.
#pragma once

#include "config/config.hpp"
#include "core/system.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

namespace colossal {

/// Owner of runs/NAME on rank 0: lock, config copies, plan.json, env.json, status.json.
class RunDir {
 public:
  /// Creates the folder if needed and takes run.lock (waits up to 5 s for a dying predecessor).
  /// Errors: config "output-in-use" (host and pid of the holder), config "output-not-writable",
  /// config "disk-low".
  static std::unique_ptr<RunDir> open(const std::filesystem::path& folder,
                                      std::int64_t checkpoint_bytes);
  /// --overwrite: renames an existing run directory to NAME.old-<k> and returns the new name; empty
  /// if there is nothing to move. Errors: config "output-in-use", "output-not-writable",
  /// "overwrite-not-a-run" (a folder that no run made).
  static std::filesystem::path move_aside(const std::filesystem::path& folder);
  /// For a process that is left after the owner has ended: takes the lock if nobody holds it. Null
  /// if the folder is neither empty nor a run directory (a refused start may name any folder), is
  /// in use or cannot be written; never waits, never throws.
  static std::unique_ptr<RunDir> take_over(const std::filesystem::path& folder);
  RunDir(const RunDir&) = delete;
  RunDir& operator=(const RunDir&) = delete;

  /// The folder itself.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Where save_checkpoint() puts step-* folders.
  [[nodiscard]] std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  /// How often this directory was started, this time included (1 for a new run).
  [[nodiscard]] std::int64_t attempt() const noexcept { return attempt_; }

  /// Atomically replaces a small file of the run directory.
  void write(const std::string& name, const std::string& text) const;
  /// As write(), but a failure is only logged: a full disk must not end a run that can go on.
  void update(const std::string& name, const std::string& text) const;

 private:
  RunDir(std::filesystem::path path, Descriptor lock);
  std::filesystem::path path_;
  Descriptor lock_;  ///< closing it drops the lock
  std::int64_t attempt_ = 1;
  mutable std::mutex writing_;  ///< the thread that takes signals writes status.json too
};

/// Where the ranks of an attempt write their log files: logs, and logs/attempt-N from the second
/// on.
[[nodiscard]] std::filesystem::path log_folder(const std::filesystem::path& run,
                                               std::int64_t attempt);

/// Attempt number in status.json, 0 if there is none or the file is damaged. Never throws.
[[nodiscard]] std::int64_t last_attempt(const std::filesystem::path& run);

/// Probes that `folder` can be written and has room for two checkpoints of so many bytes (0: none
/// is saved) and 1 GiB, without leaving anything but the folder, and not even that if it fails.
/// What is in it already must take checkpoints, exports, logs, metrics and status, unless it is to
/// be `moved_aside`. Errors: config "output-not-writable", "disk-low".
void check_writable(const std::filesystem::path& folder,
                    std::int64_t checkpoint_bytes,
                    bool moved_aside = false);

/// That no run holds the lock of `folder` (waits up to 5 s for a dying one), without keeping it or
/// making anything. Errors: config "output-in-use".
void check_unused(const std::filesystem::path& folder);

}  // namespace colossal
