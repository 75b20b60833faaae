// How does one start of a run proceed? In the order of TrainSession::run.
#include "train/session.hpp"

#include "checkpoint/stored_config.hpp"
#include "config/load.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/signals.hpp"
#include "core/system.hpp"
#include "core/text.hpp"
#include "memory/device_memory.hpp"
#include "mesh/device.hpp"
#include "train/environment.hpp"
#include "train/foreign.hpp"
#include "train/hooks.hpp"
#include "train/init_weights.hpp"
#include "train/memory_report.hpp"
#include "train/startup.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

namespace colossal {
namespace {

namespace fs = std::filesystem;

std::string to_text(const CheckpointChoice& choice, const fs::path& init, std::int64_t attempt) {
  nlohmann::json list = nlohmann::json::array();
  for (const CheckpointInfo& info : choice.candidates) {
    list.push_back({{"path", info.path.string()}, {"step", info.step}});
  }
  return nlohmann::json{{"attempt", attempt}, {"candidates", list}, {"init", init.string()}}.dump();
}

CheckpointChoice candidates_from(const nlohmann::json& decision) {
  CheckpointChoice choice;
  for (const auto& item : decision["candidates"]) {
    choice.candidates.push_back(CheckpointInfo{
        item["path"].get<std::string>(), item["step"].get<std::int64_t>(), true, ""});
  }
  return choice;
}

bool is_no_weight(const TensorRecord& record) {
  return !record.name.starts_with("model/");
}

/// A damage that an older checkpoint can replace; everything else is a misfit that it would share.
bool is_damage(const Error& error) {
  return error.id() == "checkpoint-checksum" || error.id() == "checkpoint-incomplete";
}

/// Keeps what the summary and the farewell tell: start of the first step, last step, last losses.
class ProgressHook : public Hook {
 public:
  ProgressHook(const LaunchOptions& launch, RunSummary& summary, std::atomic<std::int64_t>& step)
      : launch_(launch), summary_(summary), step_(step) {}
  void on_start(Trainer&) override {
    summary_.startup_seconds = seconds_since_process_start(launch_);
    summary_.persistent_bytes = device_memory().use().current;
  }
  void on_step(Trainer& trainer, const StepReport& report) override {
    step_ = trainer.state().step;
    summary_.loss = report.loss;
    summary_.rate.add(report.tokens, report.step_seconds);
  }
  void on_eval(Trainer&, const EvalReport& report) override {
    summary_.eval_loss = report.loss;
    summary_.eval_accuracy = report.accuracy;
  }

 private:
  const LaunchOptions& launch_;
  RunSummary& summary_;
  std::atomic<std::int64_t>& step_;
};

void warn_of_loss(const CheckpointInfo& damaged, std::int64_t resumed_step) {
  log::warn("[checkpoint] {} is damaged ({}): steps {} to {} are lost and will be trained again",
            damaged.path.string(),
            damaged.problem,
            resumed_step + 1,
            damaged.step);
}

}  // namespace

TrainSession::TrainSession(const TrainOptions& options,
                           const Loaded& loaded,
                           World& world,
                           SignalWatch& signals,
                           FailureRecord& failures)
    : options_(options),
      loaded_(loaded),
      config_(loaded.config),
      world_(world),
      signals_(signals),
      failures_(failures),
      context_(config_, world),
      started_seconds_(seconds_since_process_start(world.launch())) {
  summary_.output_dir = config_.run.output_dir;
  summary_.generates = config_.model.type == ModelType::gpt && config_.data.tokenizer.has_value();
}

TrainSession::~TrainSession() {
  signals_.set_farewell({});
  signals_.set_notice({});
  failures_.own(nullptr);
}

void TrainSession::configure_log(const fs::path& folder) const {
  log::configure({.level = options_.log_level.value_or(log_level(config_.logging.level)),
                  .rank = world_.rank(),
                  .folder = folder,
                  .keeps_info = keeps_info(config_.logging, world_.rank())});
}

int TrainSession::run() {
  try {
    return run_all();
  } catch (const std::exception& error) {
    const std::int64_t step = summary_.startup_seconds > 0 ? step_ + 1 : 0;
    RefusedRun where{.rank = world_.rank(), .step = step, .persistent = summary_.persistent_bytes};
    if (trainer_ != nullptr) {
      const ChunkStore& store = *trainer_->parts().store;
      where.budget_missing = store.counters().missing_bytes;
      where.held = store.held();
    }
    if (const auto report = memory_report(error, config_, where)) {
      throw Error(*report);
    }
    throw;
  }
}

int TrainSession::run_all() {
  const LaunchOptions& launch = world_.launch();
  configure_log({});
  data_ = open_data(launch.rank == 0 ? config_ : checked_elsewhere(config_));
  if (const int code = check_data(); code != 0) {
    return code;
  }
  const CheckpointChoice choice = prepare();
  if (!options_.dry_run) {
    configure_log(log_folder(config_.run.output_dir, attempt_));
  }
  log::console(fmt::format("{} on {}\nlaunch:   {}, {} of {} on this host",
                           "colossal-train " + build_id(),
                           host_name(),
                           launch.mode,
                           launch.local_world_size,
                           counted(launch.world_size, "rank")));
  record_rank(world_);
  if (world_.device().is_cuda()) {
    log::console(fmt::format("device:   {}", describe_device(world_.device())));
  }
  limit_time();
  restore(choice);
  step_ = trainer_->state().step;
  if (trainer_->state().step >= trainer_->parts().total_steps) {
    log::console(fmt::format("nothing to do: {} already holds step {} of {} [output-finished]",
                             config_.run.output_dir,
                             trainer_->state().step,
                             trainer_->parts().total_steps));
    if (is_main() && run_dir_ != nullptr) {
      export_weights(false);
      fill_summary("nothing to do");
      print_summary();
    }
    return 0;
  }
  announce();
  if (options_.dry_run) {
    if (is_main()) {
      fmt::print("dry run ok\n");
    }
    return 0;
  }
  train();
  finish();
  return trainer_->stopped() == StopReason::none ? 0 : kStoppedExit;
}

int TrainSession::check_data() {
  return std::stoi(decide_on_rank_0(world_.comm(), [this] {
    return std::to_string(report_findings(check_with_data(loaded_, *data_.train),
                                          speaks(world_.launch()),
                                          options_.config.json_diagnostics));
  }));
}

CheckpointChoice TrainSession::prepare() {
  const auto decision = nlohmann::json::parse(decide_on_rank_0(world_.comm(), [this] {
    const CheckpointChoice choice = prepare_on_rank_0();
    const fs::path init = settle_initial_weights(config_, choice);
    return to_text(choice, init, run_dir_ != nullptr ? run_dir_->attempt() : 1);
  }));
  // Only rank 0 has the run directory; log files and folders of checkpoints carry one number.
  attempt_ = decision["attempt"].get<std::int64_t>();
  init_from_ = decision["init"].get<std::string>();
  return candidates_from(decision);
}

void TrainSession::take_folder(std::int64_t saved_bytes) {
  const fs::path folder = config_.run.output_dir;
  const fs::path moved = options_.overwrite ? RunDir::move_aside(folder) : fs::path();
  if (!moved.empty()) {
    log::console(fmt::format("moved     {} to {}", folder.string(), moved.string()));
  }
  run_dir_ = RunDir::open(folder, saved_bytes);
  failures_.own(run_dir_.get());
}

CheckpointChoice TrainSession::prepare_on_rank_0() {
  const fs::path folder = config_.run.output_dir;
  const std::int64_t saved_bytes = make_outline(config_, 0).room_bytes(options_.use_job_deadline);
  if (options_.dry_run) {
    blaming("run.output_dir", [&] { check_writable(folder, saved_bytes, options_.overwrite); });
  } else {
    if (options_.overwrite) {  // before the old run is moved aside for nothing
      settle_initial_weights(config_, {});
    }
    blaming("run.output_dir", [&] { take_folder(saved_bytes); });
  }
  if (options_.dry_run && options_.overwrite) {
    return {};
  }
  const CheckpointChoice choice = blaming("checkpoint.resume", [&] {
    return choose_resume(
        {.mode = config_.checkpoint.resume, .checkpoints = folder / "checkpoints"});
  });
  for (const CheckpointInfo& damaged : choice.damaged) {
    warn_of_loss(damaged, choice.candidates.front().step);
  }
  return choice;
}

void TrainSession::restore(const CheckpointChoice& choice) {
  if (choice.candidates.empty()) {
    make_trainer(RunState{});
    if (!init_from_.empty()) {
      load_initial_weights(init_from_, config_, context_, trainer_->records(), world_.comm());
      trainer_->parts().store->publish_masters();
    }
    return;
  }
  for (const CheckpointInfo& candidate : choice.candidates) {
    if (restore_from(candidate)) {
      resumed_from_ = candidate.path;
      resumed_step_ = candidate.step;
      return;
    }
  }
  fail(
      ErrorKind::checkpoint,
      "checkpoint-damaged",
      "no checkpoint of {} can be read; a run never restarts silently from step 0\n  fix   restore "
      "one of them, or start anew with --overwrite (the old folder is kept aside)",
      config_.run.output_dir);
}

bool TrainSession::restore_from(const CheckpointInfo& checkpoint) {
  RunState state;
  const auto read = [&] { state = read_state(checkpoint.path); };
  if (is_damaged_anywhere(checkpoint, read)) {  // agreed on before anything collective starts
    return false;
  }
  return !is_damaged_anywhere(checkpoint, [&] {
    const Config saved = stored_config(state);
    // Imported weights are where a run begins. Those of a run that has ended say so by their step.
    const bool begins = state.weights_only && state.step == 0;
    make_trainer(begins ? RunState{} : state);
    check(
        !state.weights_only || begins || state.step >= trainer_->parts().total_steps,
        ErrorKind::checkpoint,
        "checkpoint-weights-only",
        "{} holds weights alone (checkpoint.content: weights), no optimizer state and no position "
        "to go on from\n  fix   begin a new run with them: model.init_from: {} and another "
        "--output-dir",
        checkpoint.path.string(),
        checkpoint.path.string());
    const std::string table = compare_for_resume(
        {.saved = saved,
         .now = config_,
         .saved_fingerprint = state.data_fingerprint,
         .now_fingerprint = trainer_->state().data_fingerprint,
         .weights_only = state.weights_only,
         .inside_epoch =
             lies_inside_epoch(state, trainer_->parts().loader->samples_per_epoch(), config_.data)},
        options_.allow);
    if (!table.empty()) {
      log::console("changed   since the checkpoint was written:\n" + table);
    }
    std::vector<TensorRecord> records = trainer_->records();
    if (state.weights_only) {  // the optimizer's state is what it is before the first step
      std::erase_if(records, is_no_weight);
    }
    load_tensors(checkpoint.path, records, world_.comm());
    trainer_->parts().store->publish_masters();
  });
}

bool TrainSession::is_damaged_anywhere(const CheckpointInfo& checkpoint,
                                       const std::function<void()>& use) {
  std::string damage;
  try {
    use();
  } catch (const Error& error) {
    if (!is_damage(error)) {
      throw;
    }
    damage = error.what();
  }
  for (const std::string& of_rank : world_.comm().gather_text(damage)) {
    if (!of_rank.empty()) {
      log::console(fmt::format(
          "warning: {} is damaged and passed over: {}", checkpoint.path.string(), of_rank));
      return true;
    }
  }
  return false;
}

const std::string& TrainSession::data_fingerprint() {
  if (data_fingerprint_.empty()) {  // all files are read for it: by one rank, once
    data_fingerprint_ =
        decide_on_rank_0(world_.comm(), [this] { return data_.train->fingerprint(); });
  }
  return data_fingerprint_;
}

void TrainSession::make_trainer(const RunState& state) {
  trainer_.reset();  // frees the memory of a damaged attempt before the next one takes its own
  TrainerParts parts = build(config_, context_, state, data_);
  parts.phase = [this](std::string_view phase) { world_.set_phase(phase); };
  parts.wishes = [this](double mean_step_seconds) { return wishes(mean_step_seconds); };
  parts.hooks_running = &hooks_running_;
  RunState start = state;
  start.attempt = attempt_;
  start.config_yaml = to_yaml(config_);
  start.build_id = build_id();
  start.data_fingerprint = data_fingerprint();
  trainer_ = std::make_unique<Trainer>(std::move(parts), std::move(start));
}

void TrainSession::train() {
  trainer_->add_hook(std::make_unique<ProgressHook>(world_.launch(), summary_, step_));
  checkpoints_ = &add_standard_hooks(*trainer_, run_dir_.get(), world_);
  trainer_->add_hook(std::make_unique<SaveRequestHook>(
      [this] { static_cast<void>(signals_.take_save_request()); }));
  signals_.set_farewell([this](int signal) { farewell(signal); });
  // Launchers stop the peers of a rank that failed by a signal: no step will end any more.
  signals_.set_notice([this](int /*signal*/) { world_.yield_to_failure(); });
  try {
    trainer_->run();
  } catch (const std::exception& error) {
    write_status("failed", to_error(error).exit_code());
    throw;
  }
  summary_.utilization = measure_utilization(*trainer_, summary_.rate);
  signals_.set_farewell({});
}

}  // namespace colossal
