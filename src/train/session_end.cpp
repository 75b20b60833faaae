// How does one start of a run end? By its last step, on request after any step, or at once by a
// signal.
#include "checkpoint/checkpoint.hpp"
#include "core/log.hpp"
#include "core/signals.hpp"
#include "train/checkpoint_hook.hpp"
#include "train/environment.hpp"
#include "train/foreign.hpp"
#include "train/hooks.hpp"
#include "train/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

namespace colossal {
namespace {

/// Of the newest checkpoint that can go on; nothing without one. Never throws: the run is leaving.
std::optional<std::int64_t> newest_step(const Config& config) noexcept {
  std::optional<std::int64_t> newest;
  try {
    const auto folder = std::filesystem::path(config.run.output_dir) / "checkpoints";
    for (const CheckpointInfo& info : list_checkpoints(folder)) {
      newest = info.complete ? info.step : newest;
    }
  } catch (const std::exception& error) {
    log::debug("the checkpoints cannot be listed: {}", error.what());
  }
  return newest;
}

}  // namespace

std::string what_is_lost(std::string_view resume,
                         std::optional<std::int64_t> saved,
                         std::int64_t step) {
  if (!saved) {
    return step == 0 ? "no step is lost, the same command starts anew"
                     : "there is no checkpoint, the same command starts at step 1 again";
  }
  const bool same = resume != "never";  // a path is taken again until there is one of its own
  return fmt::format("{}, {} continues from the checkpoint of step {}",
                     *saved + 1 < step ? fmt::format("steps {} to {} are lost", *saved + 1, step)
                     : *saved < step   ? fmt::format("step {} is lost", step)
                                       : std::string("no step is lost"),
                     same ? "the same command" : "--resume auto (without --overwrite)",
                     *saved);
}

double assumed_save_seconds(std::int64_t checkpoint_bytes, double limit_seconds) noexcept {
  constexpr double kLeastSeconds = 5;
  constexpr double kSlowBytesPerSecond = 1e8;
  const double seconds = static_cast<double>(checkpoint_bytes) / kSlowBytesPerSecond;
  return std::min(std::max(seconds, kLeastSeconds), limit_seconds / 10);
}

void TrainSession::limit_time() {
  time_limit_ = config_.run.max_time_seconds.value_or(-1);
  time_limit_name_ = "run.max_time";
  if (options_.use_job_deadline) {
    const double end = job_end_time();
    const double left = started_seconds_ + running_.seconds() + end - unix_time();
    log::console(fmt::format("deadline  {}, when the job ends (SLURM_JOB_END_TIME)",
                             utc_time(static_cast<std::int64_t>(end))));
    if (time_limit_ < 0 || left < time_limit_) {
      time_limit_ = std::max(left, 0.0);
      time_limit_name_ = "the end of the job";
    }
  }
  if (time_limit_ >= 0) {
    first_save_seconds_ =
        assumed_save_seconds(make_outline(config_, 0).checkpoint_bytes, time_limit_);
  }
}

Wishes TrainSession::wishes(double mean_step_seconds) {
  const bool by_time = checkpoints_ != nullptr && checkpoints_->is_due();
  Wishes mine{.stop = StopReason::none, .save = signals_.take_save_request() || by_time};
  if (signals_.stop_request() != 0) {
    mine.stop = StopReason::signal;
  } else if (time_limit_ >= 0) {
    const int saves = checkpoints_ != nullptr && checkpoints_->is_writing() ? 2 : 1;
    const double measured = trainer_->mean_save_seconds();  // 0 before the first one
    const double next = mean_step_seconds + saves * (measured > 0 ? measured : first_save_seconds_);
    const bool late = started_seconds_ + running_.seconds() + next > time_limit_;
    mine.stop = late ? StopReason::max_time : StopReason::none;
  }
  return mine;
}

std::string TrainSession::ending() const {
  switch (trainer_->stopped()) {
    case StopReason::none:
      return "finished";
    case StopReason::max_time:
      return "stopped by " + time_limit_name_;
    case StopReason::signal:
      break;
  }
  const int signal = signals_.stop_request();
  return signal == 0 ? "stopped by a signal to another rank" : "stopped by " + signal_name(signal);
}

void TrainSession::finish() {
  summary_.memory = measure_memory(config_, world_.comm());
  if (!is_main()) {
    return;
  }
  if (trainer_->stopped() == StopReason::none) {
    export_weights(true);
  }
  fill_summary(ending());
  log::console(to_text(summary_));
  print_summary();
}

void TrainSession::export_weights(bool trained) {
  if (config_.checkpoint.export_at_end == ExportFormat::none || !options_.export_weights) {
    return;
  }
  const std::string step = fmt::format("step-{:08}", trainer_->state().step);
  const std::filesystem::path run = config_.run.output_dir;
  const std::filesystem::path file = run / "export" / step / "model.safetensors";
  if (!trained && std::filesystem::exists(file)) {
    return;
  }
  const std::filesystem::path checkpoint = trained ? run / "checkpoints" / step : resumed_from_;
  try {
    // An older export of this step is of other weights; half of one keeps the whole from coming.
    std::error_code told_by_export;
    std::filesystem::remove(file, told_by_export);
    std::filesystem::remove(file.parent_path() / "config.json", told_by_export);
    options_.export_weights(
        {.checkpoint = checkpoint.string(),
         .file = file.string(),
         .dtype = config_.train.precision == Precision::fp64 ? "fp64" : "fp32"});
  } catch (const std::exception& error) {
    write_status("failed", to_error(error).exit_code());
    throw;
  }
  log::console(fmt::format("export    {}", file.string()));
}

void TrainSession::print_summary() const {
  fmt::print("{}\n", to_json_line(summary_));
}

void TrainSession::fill_summary(std::string_view reason) {
  summary_.reason = reason;
  summary_.step = trainer_->state().step;
  summary_.total_steps = trainer_->parts().total_steps;
  summary_.seconds = seconds_since_process_start(world_.launch());
  if (trainer_->loop_seconds() > 0) {
    summary_.hook_share = trainer_->hook_seconds() / trainer_->loop_seconds();
  }
  for (const CheckpointInfo& info : list_checkpoints(run_dir_->checkpoints())) {
    summary_.checkpoint = info.complete ? info.path : summary_.checkpoint;
  }
}

void TrainSession::write_status(std::string_view state, int exit_code) {
  if (run_dir_ != nullptr) {
    run_dir_->update("status.json",
                     to_json(RunStatus{.state = state,
                                       .step = step_,
                                       .total = trainer_->parts().total_steps,
                                       .attempt = run_dir_->attempt(),
                                       .exit_code = exit_code}));
  }
}

void TrainSession::farewell(int signal) {
  world_.yield_to_failure();
  // Hooks would write "running" over this. Never unlocked: none starts any more. One that lasts
  // longer is a save or an evaluation, which writes nothing in the moment that is left.
  static_cast<void>(hooks_running_.try_lock_for(std::chrono::seconds(1)));
  write_status("interrupted", kSignalExit + signal);
  if (is_main()) {
    const std::int64_t step = step_;
    const std::string resume = options_.overwrite ? "never" : config_.checkpoint.resume;
    std::optional<std::int64_t> saved = newest_step(config_);
    if (!saved && !resumed_from_.empty()) {
      saved = resumed_step_;
    }
    log::console(fmt::format("stopped   by {} after step {}: {}",
                             signal_name(signal),
                             step,
                             what_is_lost(resume, saved, step)));
  }
}

}  // namespace colossal
