// What happens beside training? Console line and metrics, evaluation, status file.
#pragma once

#include "comm/comm.hpp"
#include "comm/world.hpp"
#include "config/config.hpp"
#include "train/metric_sinks.hpp"
#include "train/run_dir.hpp"
#include "train/trainer.hpp"

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace colossal {

class CheckpointHook;

/// Is this a step whose numbers are shown? Step 1 of a process, every `every`-th, and the last.
class LogCadence {
 public:
  explicit LogCadence(std::int64_t every) : every_(every) {}
  [[nodiscard]] bool due(std::int64_t step, std::int64_t total);

 private:
  std::int64_t every_;
  bool first_ = true;
};

/// "step  120/19,074" or "eval  step 250", as wide as the widest of a run, so that all lines align.
[[nodiscard]] std::string console_label(std::string_view kind,
                                        const std::string& place,
                                        std::int64_t total);

/// Prints the console lines of config-and-cli section 10 and gives train, eval and resume records
/// (section 9) to the metric sinks.
class MetricsHook : public Hook {
 public:
  /// `run_dir` may be null (ranks other than 0): no records then. `config` is kept.
  MetricsHook(const Config& config, RunDir* run_dir);
  void on_start(Trainer& trainer) override;
  void on_step(Trainer& trainer, const StepReport& report) override;
  void on_eval(Trainer& trainer, const EvalReport& report) override;

 private:
  /// Sums since the last line; losses weighted by tokens, skipped steps without loss.
  struct Window {
    std::int64_t steps = 0;
    std::int64_t trained_tokens = 0;  ///< padding is none
    std::int64_t tokens = 0;
    double loss_sum = 0;
    double seconds = 0;
    double data_seconds = 0;
    double host_seconds = 0;
    [[nodiscard]] double loss() const;
  };

  void add(const StepReport& report);
  /// `json`: of record().
  void print(const Trainer& trainer, const StepReport& report, const MetricRecord& json) const;
  [[nodiscard]] MetricRecord record(const Trainer& trainer, const StepReport& report) const;
  void write(const MetricRecord& record) const;
  [[nodiscard]] double tokens_per_second() const;
  [[nodiscard]] double eta_seconds(const Trainer& trainer) const;

  const Config& config_;
  std::vector<std::unique_ptr<MetricSink>> sinks_;  // none on ranks other than 0
  LogCadence cadence_;
  Window window_;
  std::deque<double> recent_;  // seconds of the last steps
  double recent_sum_ = 0;
};

/// Evaluates every eval.every_steps, at the start and at the end, as configured.
class EvalHook : public Hook {
 public:
  explicit EvalHook(const Config& config) : config_(config.eval) {}
  void on_start(Trainer& trainer) override;
  void on_step(Trainer& trainer, const StepReport& report) override;
  void on_end(Trainer& trainer) override;

 private:
  EvalConfig config_;
  std::int64_t last_step_ = -1;
};

/// Ends a request to save with the save that all ranks make for it: one signal reaches them at
/// different moments, and the last would ask again a step later. Acts after CheckpointHook.
class SaveRequestHook : public Hook {
 public:
  /// `drop` forgets what this rank alone was asked.
  explicit SaveRequestHook(std::function<void()> drop) : drop_(std::move(drop)) {}
  void on_step(Trainer& /*trainer*/, const StepReport& report) override {
    if (report.save) {
      drop_();
    }
  }

 private:
  std::function<void()> drop_;
};

/// Where a run stands, as status.json tells it.
struct RunStatus {
  std::string_view state = "running";  ///< running, finished, stopped, failed or interrupted
  std::int64_t step = 0;
  std::int64_t total = 0;
  std::int64_t attempt = 1;
  std::optional<int> exit_code = {};  ///< of a process that has ended
};

/// Text of status.json: the status, this process and the time.
[[nodiscard]] std::string to_json(const RunStatus& status);

/// Rewrites status.json at each log interval, at the start and at the end.
class StatusHook : public Hook {
 public:
  /// `run_dir` may be null (ranks other than 0): does nothing then.
  StatusHook(const Config& config, RunDir* run_dir);
  void on_start(Trainer& trainer) override;
  void on_step(Trainer& trainer, const StepReport& report) override;
  void on_end(Trainer& trainer) override;
  void on_stop(Trainer& trainer) override;

 private:
  void write(const Trainer& trainer, RunStatus status) const;

  RunDir* run_dir_;
  LogCadence cadence_;
};

/// Adds the hooks of every run in the order in which they must act: metrics, evaluation,
/// checkpoint, status, profiler. `run_dir` is null on ranks other than 0 and must outlive
/// `trainer`. Returns the hook that saves.
CheckpointHook& add_standard_hooks(Trainer& trainer, RunDir* run_dir, const World& world);

}  // namespace colossal
