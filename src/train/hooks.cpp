// What happens beside training? Small observers of the loop; none of them changes numbers.
#include "train/hooks.hpp"

#include "core/log.hpp"
#include "core/signals.hpp"
#include "core/system.hpp"
#include "core/trace.hpp"
#include "memory/device_memory.hpp"
#include "train/checkpoint_hook.hpp"
#include "train/environment.hpp"
#include "train/human.hpp"
#include "train/profiler.hpp"
#include "train/stopwatch.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

namespace colossal {
namespace {

constexpr std::size_t kRecentSteps = 100;  // the ETA follows the last hundred steps

/// The largest resident set of this process so far.
std::int64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

/// Tensors of the fullest moment beside the size of the device, or what the process takes if the
/// device has no size.
std::string memory_text() {
  const std::optional<std::int64_t> limit = device_memory().limit();
  return limit ? fmt::format("{}/{}",
                             human_binary(static_cast<double>(device_memory().use().highest)),
                             human_binary(static_cast<double>(*limit)))
               : human_gib(static_cast<double>(peak_memory_bytes()));
}

MetricRecord event(std::string_view kind, const Trainer& trainer, std::int64_t step) {
  return {{"t", unix_time()}, {"attempt", trainer.state().attempt}, {"kind", kind}, {"step", step}};
}

/// "20 batches", with the share of the set if eval.max_batches left some out.
std::string coverage(const EvalReport& report) {
  const std::string batches = counted(report.num_batches, "batch", "batches");
  return report.samples == report.set_samples
             ? batches
             : fmt::format("{} ({} of {} samples)", batches, report.samples, report.set_samples);
}

}  // namespace

std::string console_label(std::string_view kind, const std::string& place, std::int64_t total) {
  const std::size_t step = std::string_view("step  /").size() + 2 * thousands(total).size();
  const std::size_t other = std::string_view("eval  step ").size() + std::to_string(total).size();
  return fmt::format("{:<{}}", fmt::format("{}  {}", kind, place), std::max(step, other));
}

bool LogCadence::due(std::int64_t step, std::int64_t total) {
  return std::exchange(first_, false) || step % every_ == 0 || step == total;
}

double MetricsHook::Window::loss() const {
  return tokens > 0 ? loss_sum / static_cast<double>(tokens)
                    : std::numeric_limits<double>::quiet_NaN();
}

MetricsHook::MetricsHook(const Config& config, RunDir* run_dir)
    : config_(config), cadence_(config.logging.every_steps) {
  if (run_dir != nullptr) {
    sinks_ = make_metric_sinks(config.logging, *run_dir);
  }
}

void MetricsHook::on_start(Trainer& trainer) {
  const std::int64_t step = trainer.state().step;
  for (const std::unique_ptr<MetricSink>& sink : sinks_) {
    sink->begin(step);
  }
  if (step > 0) {
    write(event("resume", trainer, step));
  }
}

void MetricsHook::write(const MetricRecord& record) const {
  for (const std::unique_ptr<MetricSink>& sink : sinks_) {
    sink->write(record);
  }
}

void MetricsHook::on_step(Trainer& trainer, const StepReport& report) {
  add(report);
  if (!cadence_.due(report.step, trainer.parts().total_steps)) {
    return;
  }
  const MetricRecord json = record(trainer, report);
  print(trainer, report, json);
  write(json);
  window_ = {};
}

void MetricsHook::add(const StepReport& report) {
  ++window_.steps;
  window_.trained_tokens += report.tokens;
  window_.seconds += report.step_seconds;
  window_.data_seconds += report.data_seconds;
  window_.host_seconds += report.host_seconds;
  if (!report.skipped) {
    window_.tokens += report.tokens;
    window_.loss_sum += report.loss * static_cast<double>(report.tokens);
  }
  recent_.push_back(report.step_seconds);
  recent_sum_ += report.step_seconds;
  if (recent_.size() > kRecentSteps) {
    recent_sum_ -= recent_.front();
    recent_.pop_front();
  }
}

double MetricsHook::tokens_per_second() const {
  return static_cast<double>(window_.trained_tokens) / window_.seconds;
}

double MetricsHook::eta_seconds(const Trainer& trainer) const {
  const auto left = static_cast<double>(trainer.parts().total_steps - trainer.state().step);
  const double side =
      trainer.loop_seconds() > 0 ? trainer.side_seconds() / trainer.loop_seconds() : 0;
  return left * recent_sum_ / static_cast<double>(recent_.size()) * (1 + side);
}

void MetricsHook::print(const Trainer& trainer,
                        const StepReport& report,
                        const MetricRecord& json) const {
  const std::int64_t total = trainer.parts().total_steps;
  const auto steps = static_cast<double>(window_.steps);
  const std::string scale =
      trainer.state().loss_scale
          ? fmt::format("  scale {:g} skip {}", report.loss_scale, trainer.state().skipped)
          : "";
  const std::string text = fmt::format(
      "{}  loss {:.4f}  lr {:.2e}  gnorm {:.2f}{}{}  {}/s {}  {:.3g} s/step (data {:.0f}%)"
      "  mem {}  eta {}",
      console_label("step", thousands(report.step) + "/" + thousands(total), total),
      window_.loss(),
      report.lr,
      report.grad_norm,
      report.clipped ? "*" : "",
      scale,
      config_.model.type == ModelType::mlp ? "row" : "tok",
      human_count(tokens_per_second()),
      window_.seconds / steps,
      100 * window_.data_seconds / window_.seconds,
      memory_text(),
      human_duration(eta_seconds(trainer)));
  log::console(text, json.dump());
}

MetricRecord MetricsHook::record(const Trainer& trainer, const StepReport& report) const {
  const RunState& state = trainer.state();
  const auto steps = static_cast<double>(window_.steps);
  MetricRecord json = event("train", trainer, report.step);
  json.update({{"epoch", report.epoch},
               {"samples", state.consumed},
               {"tokens", state.consumed * config_.data.seq_length},
               {"batch_size", report.samples},
               {"loss", window_.loss()},
               {"lr", report.lr},
               {"grad_norm", report.grad_norm},
               {"clipped", report.clipped},
               {"skipped", state.skipped},
               {"step_time", window_.seconds / steps},
               {"data_time", window_.data_seconds / steps},
               {"host_time", window_.host_seconds / steps},
               {"tokens_per_s", tokens_per_second()},
               {"mem_peak", peak_memory_bytes()},
               {"device_peak", device_memory().use().highest},
               {"gathered_peak", gauge(MemoryKind::gathered).use().highest},
               {"host_bytes", gauge(MemoryKind::host).use().current},
               {"pinned_bytes", gauge(MemoryKind::pinned).use().current},
               {"nvme_bytes", gauge(MemoryKind::nvme).use().current},
               {"data_hash", fmt::format("{:016x}", report.data_hash)}});
  if (state.loss_scale) {
    json["loss_scale"] = report.loss_scale;
  }
  return json;
}

void MetricsHook::on_eval(Trainer& trainer, const EvalReport& report) {
  const std::string quality = report.accuracy ? fmt::format("acc {:.2f}%", 100 * *report.accuracy)
                                              : fmt::format("ppl {:.2f}", std::exp(report.loss));
  const std::string text = fmt::format(
      "{}  loss {:.4f}  {}  {}  {:.1f} s",
      console_label("eval", fmt::format("step {}", report.step), trainer.parts().total_steps),
      report.loss,
      quality,
      coverage(report),
      report.seconds);
  MetricRecord json = event("eval", trainer, report.step);
  json.update({{"loss", report.loss},
               {"tokens", report.tokens},
               {"samples", report.samples},
               {"batches", report.num_batches},
               {"seconds", report.seconds}});
  if (report.accuracy) {
    json["accuracy"] = *report.accuracy;
  } else {
    json["ppl"] = std::exp(report.loss);
  }
  log::console(text, json.dump());
  write(json);
}

void EvalHook::on_start(Trainer& trainer) {
  if (config_.at_start) {
    last_step_ = trainer.evaluate().step;
  }
}

void EvalHook::on_step(Trainer& trainer, const StepReport& report) {
  // A run that stops is given little time, and its checkpoint comes first.
  const bool stops = report.stop != StopReason::none;
  const bool due = config_.every_steps && report.step % *config_.every_steps == 0;
  // Here, not in on_end(): what is measured belongs into the checkpoint of the last step.
  const bool last = config_.at_end.value_or(false) && report.step == trainer.parts().total_steps;
  if ((due || last) && !report.skipped && !stops) {
    last_step_ = trainer.evaluate().step;
  }
}

void EvalHook::on_end(Trainer& trainer) {
  if (config_.at_end.value_or(false) && last_step_ != trainer.state().step) {
    last_step_ = trainer.evaluate().step;
  }
}

std::string to_json(const RunStatus& status) {
  nlohmann::ordered_json json = {{"state", status.state},
                                 {"step", status.step},
                                 {"total", status.total},
                                 {"attempt", status.attempt},
                                 {"pid", getpid()},
                                 {"host", host_name()},
                                 {"time", unix_time()},
                                 {"exit", nullptr}};
  if (status.exit_code) {
    json["exit"] = *status.exit_code;
  }
  return json.dump() + "\n";
}

StatusHook::StatusHook(const Config& config, RunDir* run_dir)
    : run_dir_(run_dir), cadence_(config.logging.every_steps) {}

void StatusHook::on_start(Trainer& trainer) {
  write(trainer, {.state = "running"});
}

void StatusHook::on_step(Trainer& trainer, const StepReport& report) {
  if (cadence_.due(report.step, trainer.parts().total_steps)) {
    write(trainer, {.state = "running"});
  }
}

void StatusHook::on_end(Trainer& trainer) {
  write(trainer, {.state = "finished", .exit_code = 0});
}

void StatusHook::on_stop(Trainer& trainer) {
  write(trainer, {.state = "stopped", .exit_code = kStoppedExit});
}

void StatusHook::write(const Trainer& trainer, RunStatus status) const {
  if (run_dir_ == nullptr) {
    return;
  }
  status.step = trainer.state().step;
  status.total = trainer.parts().total_steps;
  status.attempt = trainer.state().attempt;
  run_dir_->update("status.json", to_json(status));
}

CheckpointHook& add_standard_hooks(Trainer& trainer, RunDir* run_dir, const World& world) {
  const Config& config = trainer.parts().config;
  trainer.add_hook(std::make_unique<MetricsHook>(config, run_dir));
  trainer.add_hook(std::make_unique<EvalHook>(config));
  auto checkpoints = std::make_unique<CheckpointHook>(config, world.comm());
  CheckpointHook& added = *checkpoints;
  trainer.add_hook(std::move(checkpoints));
  trainer.add_hook(std::make_unique<StatusHook>(config, run_dir));
  if (config.logging.profiler) {
    trainer.add_hook(std::make_unique<ProfilerHook>(config, world.comm()));
  }
  return added;
}

}  // namespace colossal
