// Where does the time of some steps go? Records them as `logging.profiler` says.
#pragma once

#include "comm/comm.hpp"
#include "config/config.hpp"
#include "train/trainer.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>

namespace colossal {

/// Records `steps` optimizer steps from `start_step` on, with the hooks after each of them: our
/// phases, collectives, and the operations of LibTorch. Then every rank writes
/// profile/step-XXXXXXXX-rank-XXXX.json (its failure is only logged), and rank 0 prints a table of
/// phases over all ranks. Must be the last hook of a trainer. Collective over `world`.
class ProfilerHook : public Hook {
 public:
  /// `config.logging.profiler` must be set.
  ProfilerHook(const Config& config, Comm world);
  ~ProfilerHook() override;
  ProfilerHook(const ProfilerHook&) = delete;
  ProfilerHook& operator=(const ProfilerHook&) = delete;

  void on_start(Trainer& trainer) override;
  void on_step(Trainer& trainer, const StepReport& report) override;
  void on_end(Trainer& trainer) override;
  void on_stop(Trainer& trainer) override { on_end(trainer); }

 private:
  class Operations;
  /// Starts recording if the next step is the first one wanted.
  void begin_if_due(std::int64_t next_step);
  void finish();

  ProfilerConfig config_;
  std::filesystem::path folder_;
  Comm world_;
  std::unique_ptr<Operations> operations_;  // while recording
  std::int64_t recorded_ = 0;
  bool done_ = false;
};

}  // namespace colossal
