// What is a training run? One loop; hooks do everything that is not training.
#pragma once

#include "checkpoint/checkpoint.hpp"
#include "config/config.hpp"
#include "data/loader.hpp"
#include "mesh/context.hpp"
#include "optim/loss_scale.hpp"
#include "optim/optimizer.hpp"
#include "optim/scheduler.hpp"
#include "train/data.hpp"
#include "train/evaluate.hpp"
#include "train/gradient_pass.hpp"
#include "train/model.hpp"
#include "train/stopwatch.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace colossal {

/// Why a run ended before its last step.
enum class StopReason : std::uint8_t { none, signal, max_time };

/// What one rank is asked to do after a step. Any rank's wish is that of all.
struct Wishes {
  StopReason stop = StopReason::none;
  bool save = false;
};

/// Facts of one optimizer step, equal on all ranks unless said otherwise.
struct StepReport {
  std::int64_t step = 0;  ///< 1-based number of this update (= state.step if not skipped)
  double loss = 0;        ///< mean over the global batch, as train.loss_reduction says
  double grad_norm = 0;   ///< before clipping
  bool clipped = false;
  bool skipped = false;   ///< overflow under fp16, or non-finite under train.nonfinite: skip
  double loss_scale = 1;  ///< factor of this step's loss; 1 unless fp16
  double lr = 0;
  std::int64_t tokens = 0;      ///< labelled tokens of the global batch
  std::int64_t samples = 0;     ///< of the global batch
  std::uint64_t data_hash = 0;  ///< of the global batch
  double epoch = 0;
  double step_seconds = 0;  ///< this rank
  double data_seconds = 0;  ///< this rank: waiting for the loader
  double host_seconds = 0;  ///< this rank: of the step, without waiting for data or a GPU
  bool recorded = false;    ///< forward and backward were one call (train.cuda_graph)
  StopReason stop = StopReason::none;  ///< why the run ends after this step, before its last one
  bool save = false;                   ///< a checkpoint is wanted after this step
};

class Trainer;

/// Something that happens beside training. Called on every rank in the same order; may communicate.
class Hook {
 public:
  virtual ~Hook() = default;
  virtual void on_start(Trainer&) {}
  virtual void on_step(Trainer&, const StepReport&) {}
  virtual void on_eval(Trainer&, const EvalReport&) {}
  virtual void on_end(Trainer&) {}
  /// Instead of on_end() if the run ends before its last step, on request.
  virtual void on_stop(Trainer&) {}
};

/// Everything a run owns beside its model. Built by build().
struct TrainerParts : LiveModel {
  TrainerParts(const Config& run, const ParallelContext& ranks) : config(run), context(ranks) {}

  const Config& config;
  const ParallelContext& context;
  std::unique_ptr<Optimizer> optimizer;
  std::vector<ParamGroup> groups;
  std::shared_ptr<const Dataset> train_data;
  std::shared_ptr<const Dataset> eval_data;  ///< may be null
  std::unique_ptr<Loader> loader;
  std::unique_ptr<Scheduler> scheduler;
  std::int64_t total_steps = 0;
  std::function<void(std::string_view phase)>
      phase;  ///< told what the loop is doing (World::set_phase); may be empty
  /// Asked once a step; told the mean seconds of a step of this process so far. May be empty.
  std::function<Wishes(double mean_step_seconds)> wishes;
  std::timed_mutex* hooks_running = nullptr;  ///< held while hooks run; may be null
};

/// The training loop. Errors: numerics "nonfinite-loss", "nonfinite-gradient", "loss-spike" before
/// the update (weights untouched; not under fp16, where overflow is expected), "too-many-skipped";
/// data "no-labels" for a global batch without any label.
class Trainer {
 public:
  /// `parts` as build() made them for the same `state`. Its data_fingerprint is that of the data
  /// that `parts` holds; left empty, it is found here by reading all of them.
  Trainer(TrainerParts parts, RunState state);
  void add_hook(std::unique_ptr<Hook> hook);

  /// Runs until total_steps, or until a rank wishes to stop: then to the end of that step. Returns
  /// the final state.
  RunState run();
  /// Why the last run() ended early.
  [[nodiscard]] StopReason stopped() const noexcept { return stopped_; }
  /// One pass over the evaluation set, as evaluate(); every rank calls on_eval of all hooks.
  EvalReport evaluate();

  /// Masters and optimizer states of all parameters as checkpoint records (views of live memory).
  [[nodiscard]] std::vector<TensorRecord> records();
  [[nodiscard]] const RunState& state() const noexcept { return state_; }
  [[nodiscard]] const TrainerParts& parts() const noexcept { return parts_; }
  /// Hooks report each save, which is work that the user asked for: what it took, and how long
  /// training has stood still at its end.
  void add_save(double seconds, double blocked_seconds) noexcept;
  /// Hooks report other time in which training stood still for such work.
  void add_side(double seconds) noexcept { side_seconds_ += seconds; }
  /// Mean seconds of the saves so far; 0 before the first.
  [[nodiscard]] double mean_save_seconds() const noexcept;
  /// Seconds of evaluation and saving so far.
  [[nodiscard]] double side_seconds() const noexcept { return side_seconds_; }
  /// Seconds hooks took so far beyond evaluation and saving: the price of watching the run.
  [[nodiscard]] double hook_seconds() const noexcept { return hook_seconds_; }
  /// Seconds of the loop so far without evaluation and saving: steps and hooks.
  [[nodiscard]] double loop_seconds() const noexcept { return loop_seconds_; }

 private:
  StepReport step();
  void run_hooks(const std::function<void(Hook&)>& call);
  /// Applies the gradients unless report.skipped; advances the state.
  void update(StepReport& report);
  /// Errors: numerics as the class says; counts the skip otherwise.
  void skip_or_stop(const StepReport& report);
  void tell(std::string_view phase) const;
  /// Loss, gradient norm and whether to skip, equal on all ranks. `watch` has run since the step
  /// began, `divisor`: of sums.loss over all ranks. Returns for how many seconds the device was
  /// waited for. Errors: numerics "loss-spike".
  double judge(StepReport& report, const StepSums& sums, double divisor, const Stopwatch& watch);
  /// Errors: numerics "loss-spike", on all ranks.
  void stop_at_spike(const StepReport& report) const;
  /// This rank's wishes, `seconds` after the step has begun.
  [[nodiscard]] Wishes wishes(double seconds) const;

  TrainerParts parts_;
  RunState state_;
  LossScaler scaler_;
  GradientPass gradients_;
  std::vector<std::unique_ptr<Hook>> hooks_;
  std::int64_t skipped_in_a_row_ = 0;
  StopReason stopped_ = StopReason::none;
  std::int64_t num_steps_ = 0;  ///< of this process, skipped ones included
  std::int64_t num_saves_ = 0;
  double save_seconds_ = 0;
  double side_seconds_ = 0;
  double hook_seconds_ = 0;
  double loop_seconds_ = 0;
};

/// Intra-op threads of this rank: run.threads, or the cores shared fairly with the local ranks; one
/// inter-op thread. Call before the first tensor operation.
void set_threads(const RunConfig& run, int local_world_size);

/// Builds all parts of a run on `data` at position `state` (fresh: default RunState). Allocates and
/// initialises parameters; loads nothing. Errors: config; data "data-too-small"; memory.
[[nodiscard]] TrainerParts build(const Config& config,
                                 const ParallelContext& context,
                                 const RunState& state,
                                 OpenedData data);

/// The same on the configuration's own data. Errors: those of open_data(), too.
[[nodiscard]] TrainerParts build(const Config& config,
                                 const ParallelContext& context,
                                 const RunState& state);

}  // namespace colossal
