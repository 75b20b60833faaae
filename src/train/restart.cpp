// How does a launcher tell a failure that passes from one that stays?
#include "train/restart.hpp"

#include "checkpoint/checkpoint.hpp"
#include "core/error.hpp"
#include "core/signals.hpp"
#include "train/startup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace colossal {
namespace {

constexpr int kMostDoublings = 12;
/// More milliseconds than poll() can count are no wait.
constexpr std::chrono::days kLongestWait{20};

bool may_pass(int exit_code) {
  return exit_code == static_cast<int>(ErrorKind::comm) || exit_code > kSignalExit;
}

std::string place(std::optional<std::int64_t> newest) {
  return newest ? fmt::format("the checkpoint of step {}", *newest) : "step 0";
}

std::optional<CheckpointInfo> newest_complete(const std::filesystem::path& run) {
  std::optional<CheckpointInfo> newest;
  for (const CheckpointInfo& info : list_checkpoints(run / "checkpoints")) {
    newest = info.complete ? info : newest;
  }
  return newest;
}

}  // namespace

RestartDecision RestartPolicy::decide(const LaunchOutcome& outcome,
                                      std::optional<std::int64_t> newest,
                                      bool is_end) {
  if (max_restarts_ == 0) {
    return {};
  }
  if (outcome.asked_to_stop) {
    return {std::nullopt, "restart   no: the run was asked to stop"};
  }
  if (!may_pass(outcome.exit_code)) {
    return {std::nullopt,
            fmt::format("restart   no: exit code {} would only come again", outcome.exit_code)};
  }
  if (num_restarts_ == max_restarts_) {
    return {std::nullopt, fmt::format("restart   no: all {} are used up", max_restarts_)};
  }
  if (is_end) {
    return {std::nullopt,
            fmt::format("restart   no: {} holds weights alone (checkpoint.content: weights), "
                        "nothing to go on from",
                        place(newest))};
  }
  const std::int64_t step = newest.value_or(-1);
  if (num_restarts_ > 0 && step <= last_step_) {
    return {
        std::nullopt,
        fmt::format("restart   no: nothing was saved since the last one, from {}", place(newest))};
  }
  last_step_ = step;
  const std::int64_t factor = std::int64_t{1} << std::min(num_restarts_, kMostDoublings);
  const auto wait = std::min<std::chrono::milliseconds>(first_wait_ * factor, kLongestWait);
  ++num_restarts_;
  return {wait,
          fmt::format("restart   {} of {} in {:g} s, from {}",
                      num_restarts_,
                      max_restarts_,
                      static_cast<double>(wait.count()) / 1000,
                      place(newest))};
}

std::optional<std::int64_t> newest_checkpoint(const std::filesystem::path& run) {
  try {
    const std::optional<CheckpointInfo> newest = newest_complete(run);
    return newest ? std::optional(newest->step) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;  // the next start says what is wrong
  }
}

bool newest_is_end(const std::filesystem::path& run) {
  try {
    const std::optional<CheckpointInfo> newest = newest_complete(run);
    return newest && newest->step > 0 && read_state(newest->path).weights_only;
  } catch (const Error&) {
    return false;
  }
}

std::vector<std::string> with_option(std::vector<std::string> arguments,
                                     const std::string& option) {
  const auto command = std::ranges::find(arguments, "train");
  arguments.insert(command == arguments.end() ? command : command + 1, option);
  return arguments;
}

std::vector<std::string> to_resume(const std::vector<std::string>& arguments, bool has_saved) {
  std::vector<std::string> kept = arguments;
  std::erase_if(kept, [](const std::string& argument) {
    return argument == "--overwrite" || argument.starts_with("--overwrite=");
  });
  return has_saved ? with_option(without_options(kept, {"--resume"}), "--resume=auto") : kept;
}

}  // namespace colossal
