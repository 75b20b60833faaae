// How does a test run the real program? Starts the binary, gives it a deadline, keeps what it
// wrote.
#pragma once

#include "support/catch.hpp"
#include "support/temp_dir.hpp"
#include "support/text.hpp"

#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <sys/types.h>
#include <vector>

namespace colossal::test {

using Arguments = std::vector<std::string>;
using Json = nlohmann::json;

/// How a program ended: its exit code, or 128 + n after signal n; and everything it wrote.
struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

/// How a program is started beside its arguments.
struct Setting {
  std::map<std::string, std::string> environment = {};  ///< added to the test's own
  std::string input = "/dev/null";                      ///< file that stdin reads
  std::vector<int> closed = {};   ///< streams (0 to 2) that are closed instead
  std::vector<int> ignored = {};  ///< signals that it is started to ignore
  std::string output = "";  ///< file that stdout is written to; "": one that Outcome::out holds
  std::chrono::seconds timeout{180};  ///< without any awaited text or the end
};

/// A running colossal-train. Killed by the destructor if it still runs.
class Program {
 public:
  explicit Program(const Arguments& arguments, const Setting& setting = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  void send(int signal) const;
  [[nodiscard]] bool has_ended();
  /// Waits until stderr so far holds `text`; fails the test if it ends or times out before. Starts
  /// the clock of the timeout anew.
  void await_stderr(const std::string& text);
  /// Waits until the program holds back the signals of a run, which it does before it loads.
  void await_held_signals();
  /// Waits for the end; fails the test (and kills the program) after the timeout.
  Outcome wait();
  /// Processes started by this one that still live, by their command lines.
  [[nodiscard]] std::vector<pid_t> children() const;

 private:
  TempDir folder_;
  Setting setting_;
  std::string command_;
  std::chrono::steady_clock::time_point start_;  ///< of the timeout
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

/// Runs colossal-train to its end.
Outcome run(const Arguments& arguments, const Setting& setting = {});

/// Runs colossal-train and fails the test unless it ends with `code`; shows its output then.
Outcome run_expecting(int code, const Arguments& arguments, const Setting& setting = {});

/// The arguments of `train tests/e2e/tiny.yaml --output-dir FOLDER` and more.
Arguments train_tiny(const std::filesystem::path& folder, const Arguments& more = {});

/// The same for a run that must be stopped: a million steps, nothing saved.
Arguments train_endless(const std::filesystem::path& folder, const Arguments& more = {});

/// All of these, one after the other.
Arguments joined(const std::vector<Arguments>& parts);

/// `more`, on a device of this many bytes.
Arguments with_device(double bytes, Arguments more = {});

/// The setting of one rank of a job on this machine, as torchrun gives it.
Setting torchrun_rank(int rank, int world_size, int port);

/// The setting, with a fault to happen (COLOSSAL_FAULT).
Setting with_fault(const std::string& fault, Setting setting = {});

/// The folder of a checkpoint of the run.
std::filesystem::path checkpoint(const std::filesystem::path& run_dir, int step);

/// Names in the run's folder of checkpoints that start so, in order: checkpoints, whole ones or in
/// the making; "": all.
std::vector<std::string> stored(const std::filesystem::path& run_dir,
                                const std::string& start = "step-");

/// The run's status.json.
Json status_of(const std::filesystem::path& run_dir);

/// A file beside the tests.
std::string data_file(const std::string& name);

void write_file(const std::filesystem::path& file, const std::string& text);

/// Damages a file all over its middle, as a bad disk does: its size stays.
void flip_bytes(const std::filesystem::path& file);

/// The same in stderr, without the launcher's block, which quotes the message of the failed rank.
int times_told(const Outcome& outcome, const std::string& part);

/// Records of metrics.jsonl of one kind, the last one of each step.
std::map<int, Json> records(const std::filesystem::path& folder, const std::string& kind = "train");

/// The last line of stdout as JSON.
Json last_line(const Outcome& outcome);

/// Fails the test unless two checkpoints hold the same tensors with the same bits.
void require_same_tensors(const std::filesystem::path& a, const std::filesystem::path& b);

/// Fails the test unless both runs have the same steps, and at each the same data and the same loss
/// within `tolerance`, relative (0: bit-equal).
void require_same_losses(const std::filesystem::path& a,
                         const std::filesystem::path& b,
                         double tolerance);

}  // namespace colossal::test
