// When is a run saved? At steps, after a time, on request and at its end; at once or aside.
#include "train/checkpoint_hook.hpp"

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "core/trace.hpp"
#include "train/hooks.hpp"
#include "train/snapshot.hpp"

#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <utility>
#include <vector>

namespace colossal {
namespace {

constexpr int kMaxFailedSaves = 3;

void add_finite(RunState& state, const std::string& name, double value) {
  if (std::isfinite(value)) {
    state.metrics[name] = value;
  }
}

std::string folder_of(std::int64_t step) {
  return fmt::format("checkpoints/step-{:08}", step);
}

}  // namespace

/// A save whose file is being written. Members are destroyed from the last to the first: the thread
/// ends before what it uses goes.
struct CheckpointHook::InFlight {
  std::unique_ptr<CheckpointWriter> writer;
  std::vector<TensorRecord> copies;
  Stopwatch since_begin;
  double blocked_seconds = 0;  ///< training has stood still for it
  std::atomic<bool> written = false;
  std::jthread thread;
};

CheckpointHook::CheckpointHook(const Config& config, Comm world)
    : config_(config.checkpoint), run_(config.run.output_dir), world_(std::move(world)) {}

CheckpointHook::~CheckpointHook() = default;

bool CheckpointHook::is_due() const {
  return config_.every_time_seconds && world_.rank() == 0 &&
         since_save_.seconds() >= *config_.every_time_seconds;
}

void CheckpointHook::on_start(Trainer& trainer) {
  const std::int64_t step = trainer.state().step;
  last_step_ = step > 0 ? step : kNothing;
  since_save_ = Stopwatch();
}

void CheckpointHook::on_eval(Trainer& /*trainer*/, const EvalReport& report) {
  eval_ = report;
}

void CheckpointHook::on_step(Trainer& trainer, const StepReport& report) {
  if (!report.skipped) {
    train_loss_ = report.loss;
  }
  if (in_flight_ && is_written()) {
    try_to(in_flight_->writer->state().step, false, [&] { finish(trainer); });
  }
  const bool due =
      config_.every_steps && !report.skipped && report.step % *config_.every_steps == 0;
  const bool asked = report.save && last_step_ != trainer.state().step;
  if (!due && !asked) {
    return;
  }
  since_save_ = Stopwatch();
  if (in_flight_) {
    try_to(in_flight_->writer->state().step, false, [&] { finish(trainer); });
  }
  const std::int64_t step = trainer.state().step;
  const bool is_last = step == trainer.parts().total_steps;
  const bool aside = config_.async && !is_last && report.stop == StopReason::none;
  try_to(step, is_last, [&] { aside ? begin(trainer) : save(trainer); });
}

void CheckpointHook::on_end(Trainer& trainer) {
  if (in_flight_) {
    try_to(in_flight_->writer->state().step, false, [&] { finish(trainer); });
  }
  if (config_.at_end && last_step_ != trainer.state().step) {
    save(trainer);
  }
}

void CheckpointHook::on_stop(Trainer& trainer) {
  if (in_flight_) {
    try_to(in_flight_->writer->state().step, false, [&] { finish(trainer); });
  }
  if (last_step_ != trainer.state().step) {
    save(trainer);
  }
}

void CheckpointHook::try_to(std::int64_t step, bool is_last, const std::function<void()>& part) {
  try {
    part();
  } catch (const Error& error) {
    in_flight_.reset();
    last_step_ = kNothing;
    if (error.kind() != ErrorKind::checkpoint || is_last ||
        ++failures_in_a_row_ >= kMaxFailedSaves) {
      throw;
    }
    log::error(
        "[checkpoint] step {} was not saved ({} of {} failures in a row that end the run): {}",
        step,
        failures_in_a_row_,
        kMaxFailedSaves,
        error.what());
  }
}

RunState CheckpointHook::state_of(const Trainer& trainer) const {
  RunState state = trainer.state();
  state.metrics.clear();  // a resumed run begins with those of other weights
  state.weights_only = config_.content == CheckpointContent::weights;
  if (train_loss_) {
    add_finite(state, "train/loss", *train_loss_);
  }
  if (eval_ && eval_->step == state.step) {
    add_finite(state, "eval/loss", eval_->loss);
    if (eval_->accuracy) {
      add_finite(state, "eval/accuracy", *eval_->accuracy);
    } else {
      add_finite(state, "eval/ppl", std::exp(eval_->loss));
    }
  }
  return state;
}

std::vector<TensorRecord> CheckpointHook::records_of(Trainer& trainer) const {
  std::vector<TensorRecord> records = trainer.records();
  if (config_.content == CheckpointContent::weights) {
    std::erase_if(records,
                  [](const TensorRecord& record) { return !record.name.starts_with("model/"); });
  }
  return records;
}

std::unique_ptr<CheckpointWriter> CheckpointHook::make_writer(const Trainer& trainer) const {
  SaveOptions options{.keep_last = config_.keep_last,
                      .attempt = trainer.state().attempt,
                      .keep_every = config_.keep_every,
                      .checksum = config_.checksum};
  if (const auto& best = config_.keep_best) {
    options.keep_best = BestRule{best->metric, best->mode == BestMode::max};
  }
  return std::make_unique<CheckpointWriter>(
      run_ / "checkpoints", state_of(trainer), world_, std::move(options));
}

void CheckpointHook::save(Trainer& trainer) {
  const trace::Scope scope(trace::Phase::checkpoint);
  const Stopwatch watch;
  const std::int64_t step = trainer.state().step;
  const std::unique_ptr<CheckpointWriter> writer = make_writer(trainer);
  writer->write(records_of(trainer));
  const std::int64_t bytes = writer->commit();
  last_step_ = step;
  failures_in_a_row_ = 0;
  trainer.add_save(watch.seconds(), watch.seconds());
  tell(trainer,
       step,
       fmt::format("saved {} in {:.1f} s -> {}",
                   human_bytes(static_cast<double>(bytes), 2),
                   watch.seconds(),
                   folder_of(step)));
}

void CheckpointHook::begin(Trainer& trainer) {
  const trace::Scope scope(trace::Phase::checkpoint);
  const Stopwatch watch;
  auto fresh = std::make_unique<InFlight>();
  InFlight& flight = *fresh;
  flight.writer = make_writer(trainer);
  const std::vector<TensorRecord> records = records_of(trainer);
  try {
    flight.copies = snapshot(records);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory) {
      throw;
    }
    // The others need not know: a rank that has written early is waited for by none.
    log::warn("[checkpoint] no host memory for a copy, training waits for this save: {}",
              error.what());
    flight.writer->write(records);
    flight.written = true;
  }
  if (!flight.written) {
    flight.thread = std::jthread([&flight] {
      flight.writer->write(flight.copies);
      flight.written = true;
    });
  }
  in_flight_ = std::move(fresh);
  last_step_ = trainer.state().step;
  flight.blocked_seconds = watch.seconds();
  trainer.add_side(watch.seconds());
  tell(trainer, last_step_, fmt::format("saving (async, blocked {:.1f} s)", watch.seconds()));
}

bool CheckpointHook::is_written() {
  at::Tensor all = at::full({1}, in_flight_->written ? 1 : 0, at::TensorOptions().dtype(at::kLong));
  world_.all_reduce(all, ReduceOp::min).wait();
  return all.item<std::int64_t>() == 1;
}

void CheckpointHook::finish(Trainer& trainer) {
  const trace::Scope scope(trace::Phase::checkpoint);
  const Stopwatch watch;
  InFlight& flight = *in_flight_;
  if (flight.thread.joinable()) {
    flight.thread.join();
  }
  const std::int64_t bytes = flight.writer->commit();
  const std::int64_t step = flight.writer->state().step;
  const double seconds = flight.since_begin.seconds();
  flight.blocked_seconds += watch.seconds();
  failures_in_a_row_ = 0;
  trainer.add_save(seconds, watch.seconds());
  tell(trainer,
       step,
       fmt::format("saved {} in {:.1f} s (async, blocked {:.1f} s) -> {}",
                   human_bytes(static_cast<double>(bytes), 2),
                   seconds,
                   flight.blocked_seconds,
                   folder_of(step)));
  in_flight_.reset();
}

void CheckpointHook::tell(const Trainer& trainer,
                          std::int64_t step,
                          const std::string& what) const {
  log::console(
      fmt::format("{}  {}",
                  console_label("ckpt", fmt::format("step {}", step), trainer.parts().total_steps),
                  what));
}

}  // namespace colossal
