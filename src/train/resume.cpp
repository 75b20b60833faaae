// How is a checkpoint chosen and compared? Pure decisions over what lies on disk.
#include "train/resume.hpp"

#include "core/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>
#include <ranges>
#include <system_error>
#include <utility>

namespace colossal {
namespace {

namespace fs = std::filesystem;

std::string list_damage(const std::vector<CheckpointInfo>& damaged) {
  std::string text;
  for (const CheckpointInfo& info : damaged) {
    text += fmt::format("\n  {}: {}", info.path.string(), info.problem);
  }
  return text;
}

[[noreturn]] void only_damaged(const fs::path& folder, const std::vector<CheckpointInfo>& damaged) {
  fail(ErrorKind::checkpoint,
       "checkpoint-damaged",
       "{} holds only damaged checkpoints; a run never restarts silently from step 0:{}\n  fix   "
       "restore one of them, or start anew with --overwrite (the old folder is kept aside)",
       folder.string(),
       list_damage(damaged));
}

/// Splits into complete ones, newest first, and the damaged ones newer than the first of them.
ResumeChoice sort_out(const std::vector<CheckpointInfo>& all) {
  ResumeChoice choice;
  for (const CheckpointInfo& info : std::views::reverse(all)) {
    if (info.complete) {
      choice.candidates.push_back(info);
    } else if (choice.candidates.empty()) {
      choice.damaged.push_back(info);
    }
  }
  return choice;
}

/// A path given by the user: exactly that checkpoint, and never one that retention would fight
/// with.
ResumeChoice choose_path(const ResumeRequest& request, const ResumeChoice& own) {
  const fs::path wanted = find_checkpoint(request.mode);
  if (!own.candidates.empty() && !fs::equivalent(own.candidates.front().path, wanted)) {
    fail(ErrorKind::config,
         "output-exists",
         "resume from {} would mix with the newer or foreign checkpoint {} of the output folder\n"
         "  fix   choose another folder with --output-dir",
         wanted.string(),
         own.candidates.front().path.string());
  }
  ResumeChoice choice;
  choice.candidates.push_back(CheckpointInfo{wanted, read_state(wanted).step, true, ""});
  return choice;
}

/// A file that vanishes with the object: load() reads files only.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text)
      : path_(fs::temp_directory_path() /
              fmt::format("colossal-stored-config-{:08x}.yaml", std::random_device{}())) {
    std::ofstream out(path_);
    out << text << std::flush;
    check(out.good(), ErrorKind::environment, "temporary-file", "cannot write {}", path_.string());
  }
  ~TemporaryFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

struct Row {
  std::string key, checkpoint, now, effect;
};

std::string shorten(const std::string& value) {
  constexpr std::size_t kWidth = 40;
  return value.size() <= kWidth ? value : value.substr(0, kWidth - 3) + "...";
}

std::string to_table(std::vector<Row> rows) {
  rows.insert(rows.begin(), Row{"key", "checkpoint", "now", "effect"});
  std::size_t key = 0;
  std::size_t checkpoint = 0;
  std::size_t now = 0;
  for (Row& row : rows) {
    row.checkpoint = shorten(row.checkpoint);
    row.now = shorten(row.now);
    key = std::max(key, row.key.size());
    checkpoint = std::max(checkpoint, row.checkpoint.size());
    now = std::max(now, row.now.size());
  }
  std::string text;
  for (const Row& row : rows) {
    text += fmt::format("  {:<{}} | {:<{}} | {:<{}} | {}\n",
                        row.key,
                        key,
                        row.checkpoint,
                        checkpoint,
                        row.now,
                        now,
                        row.effect);
  }
  text.pop_back();
  return text;
}

std::string effect(ResumeClass resume_class, bool allowed) {
  switch (resume_class) {
    case ResumeClass::must_match:
      return "refused: must match";
    case ResumeClass::free:
      return "free to change";
    case ResumeClass::noted:
      return "the new value is used from the first resumed step";
    case ResumeClass::allow:
      break;
  }
  return allowed ? "accepted by --allow" : "refused without --allow";
}

std::vector<Difference> differences(const ResumeFacts& facts) {
  std::vector<Difference> all = diff(facts.saved, facts.now);
  if (facts.saved_fingerprint != facts.now_fingerprint) {
    all.push_back(Difference{
        "data.fingerprint", facts.saved_fingerprint, facts.now_fingerprint, ResumeClass::allow});
  }
  return all;
}

}  // namespace

ResumeChoice choose_resume(const ResumeRequest& request) {
  const fs::path& folder = request.checkpoints;
  const ResumeChoice own = sort_out(list_checkpoints(folder));
  const bool empty = own.candidates.empty() && own.damaged.empty();
  if (request.mode == "never") {
    check(empty,
          ErrorKind::config,
          "output-exists",
          "{} already holds checkpoints and checkpoint.resume is never\n  fix   continue with "
          "--resume auto, choose another --output-dir, or start anew with --overwrite",
          folder.string());
    return {};
  }
  if (request.mode != "auto" && request.mode != "require") {
    return choose_path(request, own);
  }
  if (empty) {
    check(request.mode == "auto",
          ErrorKind::checkpoint,
          "checkpoint-required",
          "checkpoint.resume is require, but {} holds no checkpoint",
          folder.string());
    return {};
  }
  if (own.candidates.empty()) {
    only_damaged(folder, own.damaged);
  }
  return own;
}

Loaded load_stored(const RunState& state, const LoadOptions& options) {
  const TemporaryFile file(state.config_yaml);
  return load(file.path(), options);
}

Config stored_config(const RunState& state) {
  Loaded loaded = load_stored(state, {});
  check(!loaded.has_errors(),
        ErrorKind::checkpoint,
        "checkpoint-config",
        "the configuration stored in the checkpoint (build {}) cannot be read by this program:\n{}",
        state.build_id,
        render(loaded.diagnostics));
  return std::move(loaded.config);
}

std::string compare_for_resume(const ResumeFacts& facts, const std::vector<std::string>& allow) {
  std::vector<Row> rows;
  std::string mismatched;
  std::string unallowed;
  for (const Difference& difference : differences(facts)) {
    const bool allowed = std::ranges::find(allow, difference.path) != allow.end();
    rows.push_back(Row{difference.path,
                       difference.saved,
                       difference.now,
                       effect(difference.resume_class, allowed)});
    if (difference.resume_class == ResumeClass::must_match) {
      mismatched += (mismatched.empty() ? "" : ", ") + difference.path;
    } else if (difference.resume_class == ResumeClass::allow && !allowed) {
      unallowed += " --allow " + difference.path;
    }
  }
  if (rows.empty()) {
    return "";
  }
  std::string table = to_table(std::move(rows));
  check(mismatched.empty(),
        ErrorKind::checkpoint,
        "resume-mismatch",
        "the checkpoint does not fit this configuration: {}\n{}\n  fix   restore these keys, or "
        "start anew with another --output-dir or --overwrite",
        mismatched,
        table);
  check(unallowed.empty(),
        ErrorKind::config,
        "resume-needs-allow",
        "the run would not continue as it began:\n{}\n  fix   restore these keys, or accept with"
        "{}",
        table,
        unallowed);
  return table;
}

}  // namespace colossal
