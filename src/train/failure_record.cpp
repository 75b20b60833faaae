// Who writes down why a run ended? The owner of its folder, else whoever is left.
#include "train/failure_record.hpp"

#include "core/error.hpp"
#include "core/log.hpp"
#include "train/environment.hpp"

#include <nlohmann/json.hpp>
#include <utility>

namespace colossal {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kAbortFile = "abort.json";
constexpr const char* kStatusFile = "status.json";

/// Messages may quote file names, which need not be UTF-8.
std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json read_json(const fs::path& file) {
  Json json = Json::parse(read_text(file), nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : Json::object();
}

/// A file that carries its time and is not older than this attempt.
bool is_of_attempt(const Json& json, double since) {
  const auto time = json.find("time");
  return time != json.end() && time->is_number() && time->get<double>() >= since;
}

/// A failure of this attempt that is only what a rank saw of others.
bool tells_of_peers(const Json& abort, double since) {
  const auto code = abort.find("code");
  return is_of_attempt(abort, since) && code != abort.end() &&
         *code == static_cast<int>(ErrorKind::comm);
}

void write_status(const RunDir& run_dir, Json status, const RunEnding& ending) {
  if (status.empty()) {
    status = {{"state", ""}, {"step", 0}, {"total", 0}, {"attempt", run_dir.attempt()}};
  }
  status["state"] = ending.failure ? "failed" : "interrupted";
  status["time"] = unix_time();
  status["exit"] = ending.exit_code;
  run_dir.update(kStatusFile, dump(status, -1));
}

}  // namespace

std::string abort_json(const RunFailure& failure, std::int64_t attempt) {
  Json phases = Json::object();
  for (std::size_t rank = 0; rank < failure.phases.size(); ++rank) {
    phases[std::to_string(rank)] = failure.phases[rank];
  }
  const Json rank = failure.rank >= 0 ? Json(failure.rank) : Json(nullptr);
  return dump({{"rank", rank},
               {"code", failure.exit_code},
               {"id", failure.id},
               {"message", failure.message},
               {"phases", phases},
               {"attempt", attempt},
               {"host", host_name()},
               {"time", unix_time()}},
              2);
}

void settle_run(const fs::path& folder, const RunEnding& ending) {
  const std::unique_ptr<RunDir> run_dir = RunDir::take_over(folder);
  if (run_dir == nullptr) {
    return;
  }
  if (ending.by_launcher && !ending.failure &&
      tells_of_peers(read_json(folder / kAbortFile), ending.since)) {
    std::error_code ignored;  // a rank's peers went by the signal before it did
    fs::remove(folder / kAbortFile, ignored);
  }
  const Json status = read_json(folder / kStatusFile);
  const auto state = status.find("state");
  const bool running = state != status.end() && *state == "running";
  const bool current = running || is_of_attempt(status, ending.since);
  // Its last owner has counted an attempt that wrote a status.
  const std::int64_t attempt = current ? run_dir->attempt() - 1 : run_dir->attempt();
  if (ending.failure &&
      (ending.by_launcher || !is_of_attempt(read_json(folder / kAbortFile), ending.since))) {
    run_dir->update(kAbortFile, abort_json(*ending.failure, attempt));
  }
  if (running || (ending.by_launcher && current) || (status.empty() && ending.failure)) {
    write_status(*run_dir, status, ending);
  }
}

FailureRecord::FailureRecord(fs::path folder) : folder_(std::move(folder)), since_(unix_time()) {}

void FailureRecord::move_to(fs::path folder) {
  const std::lock_guard lock(mutex_);
  folder_ = std::move(folder);
}

void FailureRecord::own(const RunDir* run_dir) {
  const std::lock_guard lock(mutex_);
  run_dir_ = run_dir;
}

void FailureRecord::write(const RunFailure& failure) const {
  const RunEnding ending{failure.exit_code, failure, since_, false};
  const std::lock_guard lock(mutex_);
  if (folder_.empty()) {
    return;
  }
  if (run_dir_ == nullptr) {
    settle_run(folder_, ending);
    return;
  }
  Json status = read_json(folder_ / kStatusFile);
  if (!is_of_attempt(status, since_)) {
    status = Json::object();  // this attempt has not come to its first step
  }
  run_dir_->update(kAbortFile, abort_json(failure, run_dir_->attempt()));
  write_status(*run_dir_, status, ending);
}

}  // namespace colossal
