// What does one rank do between connecting and leaving? Output folder, resume, parts, loop,
// summary.
#pragma once

#include "comm/world.hpp"
#include "config/config.hpp"
#include "mesh/context.hpp"
#include "train/commands.hpp"
#include "train/failure_record.hpp"
#include "train/plan_report.hpp"
#include "train/resume.hpp"
#include "train/run_dir.hpp"
#include "train/signals.hpp"
#include "train/stopwatch.hpp"
#include "train/summary.hpp"
#include "train/trainer.hpp"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace colossal {

class CheckpointHook;

/// Seconds to leave for a save before one was measured: 5, or what its bytes take at 100 MB/s, but
/// no more than a tenth of the limit of time.
[[nodiscard]] double assumed_save_seconds(std::int64_t checkpoint_bytes,
                                          double limit_seconds) noexcept;

/// What a run that ends at once after `step` loses, and how it goes on. `resume`: its start
/// ("never" with --overwrite); `saved`: the step of its newest checkpoint, if there is one.
[[nodiscard]] std::string what_is_lost(std::string_view resume,
                                       std::optional<std::int64_t> saved,
                                       std::int64_t step);

/// One start of `train` on one rank. All ranks run the same calls in the same order.
class TrainSession {
 public:
  /// All references must outlive the session. `failures` is told about the run directory.
  TrainSession(const TrainOptions& options,
               const Loaded& loaded,
               World& world,
               SignalWatch& signals,
               FailureRecord& failures);
  ~TrainSession();
  TrainSession(const TrainSession&) = delete;
  TrainSession& operator=(const TrainSession&) = delete;

  /// Runs it all; refused memory is explained. Trains to the end (or stops before the first step
  /// with --dry-run). Returns the exit code: 0, 75 after an early stop on request, or that of
  /// check_with_data(). Errors: all of train.
  int run();

 private:
  int run_all();
  void configure_log(const std::filesystem::path& folder) const;
  /// Rank 0 checks the data for all and says what it found. Returns the exit code.
  int check_data();
  /// Rank 0 takes the output folder and chooses; every rank gets the choice.
  CheckpointChoice prepare();
  CheckpointChoice prepare_on_rank_0();
  /// Of the training data; rank 0 finds it out for all.
  const std::string& data_fingerprint();
  /// Moves an old run aside if asked to, and opens the run directory.
  void take_folder(std::int64_t saved_bytes);
  /// Builds the trainer at step 0 or from the best readable checkpoint.
  void restore(const CheckpointChoice& choice);
  /// Whether this checkpoint could be read on every rank; a damage is logged.
  bool restore_from(const CheckpointInfo& checkpoint);
  /// Runs `use` on every rank and tells whether any rank found the checkpoint damaged (collective).
  bool is_damaged_anywhere(const CheckpointInfo& checkpoint, const std::function<void()>& use);
  void make_trainer(const RunState& state);
  /// Tells plan and origin of the run. Errors: memory "budget-too-small", before the first step.
  void announce();
  void say_origin() const;
  /// Writes what the run was asked for into its directory (rank 0).
  void describe_run(const PlanReport& plan);
  void train();
  /// The earlier of run.max_time and, with --use-job-deadline, the end of the job.
  void limit_time();
  /// What this rank is asked to do after the step that it is in.
  Wishes wishes(double mean_step_seconds);
  /// Why the run has ended, for people.
  [[nodiscard]] std::string ending() const;
  void finish();
  /// What checkpoint.export_at_end asks for; a start that has `trained` nothing leaves alone what
  /// an earlier one has done (rank 0).
  void export_weights(bool trained);
  void fill_summary(std::string_view reason);
  void print_summary() const;
  void write_status(std::string_view state, int exit_code);
  void farewell(int signal);
  [[nodiscard]] bool is_main() const { return world_.rank() == 0; }

  const TrainOptions& options_;
  const Loaded& loaded_;
  const Config& config_;
  World& world_;
  SignalWatch& signals_;
  FailureRecord& failures_;
  ParallelContext context_;
  OpenedData data_;
  std::string data_fingerprint_;
  std::int64_t attempt_ = 1;
  std::unique_ptr<RunDir> run_dir_;  ///< rank 0 only, and not with --dry-run
  std::unique_ptr<Trainer> trainer_;
  const CheckpointHook* checkpoints_ = nullptr;  ///< of trainer_; null before train()
  std::filesystem::path resumed_from_;           ///< empty: started at step 0
  std::int64_t resumed_step_ = 0;                ///< of that checkpoint
  std::filesystem::path init_from_;              ///< of settle_initial_weights()
  RunSummary summary_;
  double started_seconds_;  ///< since the start of the process (of --nproc: its launcher)
  Stopwatch running_;       ///< from then on
  double time_limit_ = -1;  ///< in seconds since the same start; negative: none
  std::string time_limit_name_;
  double first_save_seconds_ = 0;  ///< assumed with a limit, while no save was measured
  std::timed_mutex hooks_running_;
  std::atomic<std::int64_t> step_{0};  ///< last finished step, for the thread that takes signals
};

}  // namespace colossal
