// What does one start of a run say and store before its first step, and when does it not begin?
#include "config/explain.hpp"
#include "config/load.hpp"
#include "core/log.hpp"
#include "core/system.hpp"
#include "train/environment.hpp"
#include "train/memory_report.hpp"
#include "train/session.hpp"
#include "train/startup.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace colossal {

void TrainSession::announce() {
  PlanReport plan;
  if (is_main()) {
    const TrainerParts& parts = trainer_->parts();
    plan = plan_with_data(config_, *parts.train_data, parts.eval_data.get());
    plan.ranks_per_node = world_.launch().local_world_size;
    log::console(redact(config_.secrets, to_text(plan)));
    say_origin();
    if (run_dir_ != nullptr) {
      describe_run(plan);
    }
  }
  refuse_certain_lack(config_, world_.rank());  // all ranks alike, so that one report is told
  if (is_main()) {
    warn_if_over(plan, config_);
  }
}

void TrainSession::say_origin() const {
  if (resumed_from_.empty() && !config_.model.init_from.empty()) {
    log::console(fmt::format("init      weights of {}", config_.model.init_from));
  }
  if (!resumed_from_.empty()) {
    const TrainerParts& parts = trainer_->parts();
    const RunState& state = trainer_->state();
    const std::int64_t epoch_samples = parts.loader->samples_per_epoch();
    log::console(fmt::format("resume    step {} from {}: lr {:.4e}, epoch {}, sample {} of {}",
                             state.step + 1,
                             resumed_from_.string(),
                             parts.scheduler->lr(state.step),
                             state.consumed / epoch_samples,
                             state.consumed % epoch_samples,
                             epoch_samples));
  }
}

void TrainSession::describe_run(const PlanReport& plan) {
  const std::string& given = options_.config.config;
  run_dir_->write("config.yaml", given == "-" ? stdin_text().value_or("") : read_text(given));
  run_dir_->write("config.resolved.yaml", to_yaml_with_origins(loaded_));
  run_dir_->write("plan.json", redact_json(config_.secrets, to_json(plan), 2) + "\n");
  run_dir_->write(
      "env.json",
      redact_json(config_.secrets, environment_json(world_.launch(), options_.arguments), 2) +
          "\n");
}

}  // namespace colossal
