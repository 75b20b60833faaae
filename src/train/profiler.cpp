// How are steps recorded and reported?
#include "train/profiler.hpp"

#include "core/log.hpp"
#include "core/trace.hpp"
#include "train/profile.hpp"

#include <ATen/record_function.h>
#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace colossal {
namespace {

/// When an operation began; LibTorch hands it back at its end.
struct Begin : at::ObserverContext {
  std::int64_t time = trace::now();
};

std::unique_ptr<at::ObserverContext> begin_operation(const at::RecordFunction&) {
  return std::make_unique<Begin>();
}

void end_operation(const at::RecordFunction& function, at::ObserverContext* begin) {
  trace::add({.phase = trace::Phase::operation,
              .begin = static_cast<const Begin*>(begin)->time,
              .end = trace::now(),
              .thread = trace::thread_number(),
              .text = function.name()});
}

void write_file(const std::filesystem::path& file, const std::string& text) {
  std::error_code ignored;  // a folder that cannot be made shows in the stream
  std::filesystem::create_directories(file.parent_path(), ignored);
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << text << std::flush;
  if (!out) {
    log::warn(
        "[profiler] {} is not complete: {}", file.string(), std::system_category().message(errno));
  }
}

}  // namespace

/// Lets LibTorch report its operations while alive, from every thread.
class ProfilerHook::Operations {
 public:
  Operations()
      : handle_(at::addGlobalCallback(
            at::RecordFunctionCallback(begin_operation, end_operation)
                .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}))) {}
  ~Operations() { at::removeCallback(handle_); }
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

 private:
  at::CallbackHandle handle_;
};

ProfilerHook::ProfilerHook(const Config& config, Comm world)
    : config_(*config.logging.profiler),
      folder_(std::filesystem::path(config.run.output_dir) / "profile"),
      world_(std::move(world)) {}

ProfilerHook::~ProfilerHook() {
  if (operations_ != nullptr) {
    static_cast<void>(trace::stop());
  }
}

void ProfilerHook::on_start(Trainer& trainer) {
  const std::int64_t step = trainer.state().step;
  if (step >= config_.start_step) {
    done_ = true;
    log::info(
        "[profiler] nothing to record: this process starts after step {} and "
        "logging.profiler.start_step is {}",
        step,
        config_.start_step);
    return;
  }
  begin_if_due(step + 1);
}

void ProfilerHook::on_step(Trainer& trainer, const StepReport&) {
  if (operations_ != nullptr && ++recorded_ == config_.steps) {
    finish();
  }
  begin_if_due(trainer.state().step + 1);
}

void ProfilerHook::on_end(Trainer&) {
  if (operations_ != nullptr) {
    finish();  // the run was shorter than the profile
  }
}

void ProfilerHook::begin_if_due(std::int64_t next_step) {
  if (!done_ && operations_ == nullptr && next_step == config_.start_step) {
    operations_ = std::make_unique<Operations>();
    trace::start(config_.memory);
  }
}

void ProfilerHook::finish() {
  const trace::Recording recording = trace::stop();
  operations_.reset();
  done_ = true;
  const std::string file =
      fmt::format("step-{:08}-rank-{:04}.json", config_.start_step, world_.rank());
  if (config_.trace) {
    write_file(folder_ / file, to_chrome_trace(recording, world_.rank()));
  }
  std::vector<PhaseTimes> ranks;
  for (const std::string& text : world_.gather_text(to_text(phase_times(recording)))) {
    ranks.push_back(parse_phase_times(text));
  }
  if (recorded_ > 0) {
    log::console(phase_table(ranks, config_.start_step, recorded_));
  }
  if (config_.trace) {
    log::console(fmt::format("profile   -> profile/{} (open it in ui.perfetto.dev)", file));
  }
}

}  // namespace colossal
