// When is a run saved, and what happens when that fails? The hook that writes checkpoints.
#pragma once

#include "checkpoint/checkpoint.hpp"
#include "comm/comm.hpp"
#include "config/config.hpp"
#include "train/stopwatch.hpp"
#include "train/trainer.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace colossal {

/// Saves every checkpoint.every_steps, on request, at the end and before an early stop. A failed
/// save on the way is logged and training goes on; the third failure in a row and a failed last
/// save are thrown. With checkpoint.async what is saved on the way is copied and written by a
/// thread; its end is looked for after every step, so its failure counts there. Collective.
/// Errors: those of save_checkpoint.
class CheckpointHook : public Hook {
 public:
  /// `world`: all ranks of the run.
  CheckpointHook(const Config& config, Comm world);
  /// Waits for the thread; what it has written is then given up.
  ~CheckpointHook() override;
  void on_start(Trainer& trainer) override;
  void on_step(Trainer& trainer, const StepReport& report) override;
  void on_eval(Trainer& trainer, const EvalReport& report) override;
  void on_end(Trainer& trainer) override;
  void on_stop(Trainer& trainer) override;

  /// Whether checkpoint.every_time has passed since the last save began, by the clock of rank 0;
  /// never on others. A wish of one rank is that of all (Wishes::save).
  [[nodiscard]] bool is_due() const;
  /// Whether a save is under way beside training, which a stop would have to wait for.
  [[nodiscard]] bool is_writing() const noexcept { return in_flight_ != nullptr; }

 private:
  struct InFlight;

  static constexpr std::int64_t kNothing = -1;

  /// Runs `part` of a save and counts its failure. `is_last`: no later save can make up for it.
  void try_to(std::int64_t step, bool is_last, const std::function<void()>& part);
  /// The whole save, now.
  void save(Trainer& trainer);
  /// The copy and the start of the thread.
  void begin(Trainer& trainer);
  /// Whether all ranks have written what is under way (collective).
  [[nodiscard]] bool is_written();
  /// Waits for what is under way and makes it a checkpoint.
  void finish(Trainer& trainer);
  void tell(const Trainer& trainer, std::int64_t step, const std::string& what) const;
  [[nodiscard]] RunState state_of(const Trainer& trainer) const;
  [[nodiscard]] std::vector<TensorRecord> records_of(Trainer& trainer) const;
  [[nodiscard]] std::unique_ptr<CheckpointWriter> make_writer(const Trainer& trainer) const;

  CheckpointConfig config_;
  std::filesystem::path run_;
  Comm world_;
  std::int64_t last_step_ = kNothing;  ///< newest step that a checkpoint holds or is going to
  int failures_in_a_row_ = 0;
  Stopwatch since_save_;
  std::optional<EvalReport> eval_;
  std::optional<double> train_loss_;  ///< of the last step that was not skipped
  std::unique_ptr<InFlight> in_flight_;
};

}  // namespace colossal
