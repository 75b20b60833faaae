// How is a checkpoint chosen and compared? Pure decisions over what lies on disk.
#include "train/resume.hpp"

#include "core/error.hpp"
#include "core/log.hpp"
#include "data/dataset.hpp"
#include "train/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <string_view>
#include <utility>

namespace colossal {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRestoreOrOverwrite =
    "restore one of them, or start anew with --overwrite (the old folder is kept aside); a run "
    "never restarts silently from step 0";

/// A path given by the user: exactly that checkpoint, and never one that retention would fight
/// with.
CheckpointChoice choose_path(const ResumeRequest& request) {
  const fs::path wanted = find_checkpoint(request.mode);
  const RunState state = read_state(wanted);
  if (state.weights_only) {
    CheckpointChoice own = choose_checkpoints(request.checkpoints, kRestoreOrOverwrite);
    if (!own.candidates.empty()) {
      log::info(
          "[checkpoint] the run has checkpoints of its own, the weights of {} are not used "
          "[init-ignored]",
          wanted.string());
      return own;
    }
  }
  for (const CheckpointInfo& own : std::views::reverse(list_checkpoints(request.checkpoints))) {
    check(own.unreadable.empty(), ErrorKind::checkpoint, own.unreadable, "{}", own.problem);
    if (own.complete) {
      check(fs::equivalent(own.path, wanted),
            ErrorKind::config,
            "output-exists",
            "resume from {} would mix with the newer or foreign checkpoint {} of the output "
            "folder\n  fix   choose another folder with --output-dir",
            wanted.string(),
            own.path.string());
      break;
    }
  }
  CheckpointChoice choice;
  choice.candidates.push_back(CheckpointInfo{wanted, state.step, true, ""});
  return choice;
}

std::string shorten(const std::string& value) {
  constexpr std::size_t kWidth = 40;
  return value.size() <= kWidth ? value : value.substr(0, kWidth - 3) + "...";
}

std::string to_text(std::vector<TableRow> rows) {
  rows.insert(rows.begin(), {"key", "checkpoint", "now", "effect"});
  for (TableRow& row : rows) {
    row[1] = shorten(row[1]);
    row[2] = shorten(row[2]);
  }
  std::string text = to_table(rows, {.left = rows.front().size(), .begin = "  ", .between = " | "});
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

/// Whether a key that has changed gives an epoch another order.
bool changes_order(std::string_view path, const ResumeFacts& facts) {
  const bool shuffles = facts.saved.data.shuffle && facts.now.data.shuffle;
  return path == "data.shuffle" || (path == "run.seed" && shuffles);
}

std::vector<Difference> differences(const ResumeFacts& facts) {
  std::vector<Difference> all = diff(facts.saved, facts.now);
  if (facts.weights_only) {  // they come from no run that could go on otherwise than it began
    std::erase_if(all, [](const Difference& difference) {
      return difference.resume_class != ResumeClass::must_match ||
             !difference.path.starts_with("model.");
    });
    return all;
  }
  // Without momentum an optimizer keeps no state of it, so what the checkpoint holds would not fit.
  const bool had_momentum = facts.saved.optimizer.momentum > 0;
  const auto momentum = std::ranges::find(all, "optimizer.momentum", &Difference::path);
  if (momentum != all.end() && had_momentum != (facts.now.optimizer.momentum > 0)) {
    momentum->resume_class = ResumeClass::must_match;
  }
  for (Difference& difference : all) {
    if (facts.inside_epoch && changes_order(difference.path, facts)) {
      difference.resume_class = ResumeClass::allow;
    }
  }
  const std::string saved_tokenizer = tokenizer_part(facts.saved_fingerprint);
  const std::string now_tokenizer = tokenizer_part(facts.now_fingerprint);
  if (saved_tokenizer != now_tokenizer) {
    all.push_back(
        Difference{"data.tokenizer", saved_tokenizer, now_tokenizer, ResumeClass::must_match});
  }
  if (facts.saved_fingerprint != facts.now_fingerprint) {
    all.push_back(Difference{
        "data.fingerprint", facts.saved_fingerprint, facts.now_fingerprint, ResumeClass::allow});
  }
  return all;
}

}  // namespace

CheckpointChoice choose_resume(const ResumeRequest& request) {
  const fs::path& folder = request.checkpoints;
  if (request.mode == "never") {
    check(list_checkpoints(folder).empty(),
          ErrorKind::config,
          "output-exists",
          "{} already holds checkpoints and checkpoint.resume is never\n  fix   continue with "
          "--resume auto, choose another --output-dir, or start anew with --overwrite",
          folder.string());
    return {};
  }
  if (request.mode != "auto" && request.mode != "require") {
    return choose_path(request);
  }
  CheckpointChoice own = choose_checkpoints(folder, kRestoreOrOverwrite);
  check(!own.candidates.empty() || request.mode == "auto",
        ErrorKind::checkpoint,
        "checkpoint-required",
        "checkpoint.resume is require, but {} holds no checkpoint\n  fix   begin with --resume "
        "auto, or "
        "name the folder of the run with --output-dir",
        folder.string());
  return own;
}

bool lies_inside_epoch(const RunState& state, std::int64_t epoch_samples, const DataConfig& data) {
  const bool by_weight = std::ranges::any_of(
      data.train, [](const DataSource& source) { return source.weight.has_value(); });
  return state.consumed % epoch_samples != 0 || (by_weight && state.consumed != 0);
}

std::string compare_for_resume(const ResumeFacts& facts, const std::vector<std::string>& allow) {
  std::vector<TableRow> rows;
  std::string mismatched;
  std::string unallowed;
  for (const Difference& difference : differences(facts)) {
    const bool allowed = std::ranges::find(allow, difference.path) != allow.end();
    rows.push_back({difference.path,
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
  std::string table = to_text(std::move(rows));
  blaming(mismatched.substr(0, mismatched.find(',')), [&] {
    check(mismatched.empty(),
          ErrorKind::checkpoint,
          "resume-mismatch",
          "the checkpoint does not fit this configuration: {}\n{}\n  fix   restore these keys, or "
          "start anew with another --output-dir or --overwrite",
          mismatched,
          table);
  });
  check(unallowed.empty(),
        ErrorKind::checkpoint,
        "resume-needs-allow",
        "the run would not continue as it began:\n{}\n  fix   restore these keys, or accept with"
        "{}",
        table,
        unallowed);
  return table;
}

}  // namespace colossal
