// Which folders of a run are checkpoints, and which of them may go?
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/detail/durable.hpp"
#include "checkpoint/detail/folders.hpp"
#include "checkpoint/detail/manifest.hpp"
#include "core/error.hpp"
#include "core/log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ranges>
#include <system_error>

namespace colossal {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kUnreadable = "checkpoint-unreadable";

/// Paths in a folder; none if it does not exist. A folder that cannot be read is not an empty one:
/// a run would start anew beside its own checkpoints.
std::vector<fs::path> entries(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> paths;
  fs::directory_iterator entry(folder, error);
  while (!error && entry != fs::directory_iterator()) {
    paths.push_back(entry->path());
    entry.increment(error);
  }
  check(!error || error == std::errc::no_such_file_or_directory,
        ErrorKind::checkpoint,
        kUnreadable,
        "cannot read the folder of checkpoints {}: {}\n  fix   make it a folder that this user may "
        "read, or name another one",
        folder.string(),
        error.message());
  return paths;
}

/// A checkpoint with why it cannot be loaded, if so: that is what the caller asks for here, so no
/// error is passed on.
CheckpointInfo examine(const fs::path& checkpoint, std::int64_t step) {
  CheckpointInfo info{checkpoint, step, true, ""};
  try {
    detail::check_files(checkpoint, detail::read_manifest(checkpoint));
  } catch (const Error& error) {
    info.complete = false;
    if (error.id() == kUnreadable || error.id() == "checkpoint-version") {
      info.unreadable = error.id();
    }
    info.problem = error.what();
  }
  return info;
}

bool is_leftover(const std::string& name) {
  return name.starts_with(kPrefix) && name.find(kTemporary) != std::string::npos;
}

/// One damaged checkpoint a line, with its reason.
std::string list_damage(const std::vector<CheckpointInfo>& damaged) {
  std::string text;
  for (const CheckpointInfo& info : damaged) {
    text += fmt::format("\n  {}: {}", info.path.string(), info.problem);
  }
  return text;
}

/// The step of the best checkpoint by what their manifests say, so that a resumed run goes on
/// comparing with those before it; nothing without a rule or a value.
std::optional<std::int64_t> best_of(const std::vector<CheckpointInfo>& complete,
                                    const std::optional<BestRule>& rule) {
  std::optional<std::int64_t> best;
  double best_value = 0;
  for (const CheckpointInfo& info : complete) {
    const std::map<std::string, double> metrics =
        rule ? read_state(info.path).metrics : std::map<std::string, double>();
    const auto found = rule ? metrics.find(rule->metric) : metrics.end();
    if (found == metrics.end()) {
      continue;
    }
    const double value = rule->highest ? -found->second : found->second;
    if (!best || value <= best_value) {
      best = info.step;
      best_value = value;
    }
  }
  return best;
}

void remove_or_warn(const fs::path& folder) {
  if (!detail::remove_folder(folder)) {
    log::warn("[checkpoint] cannot remove {}: its space stays in use", folder.string());
  }
}

}  // namespace

namespace detail {

std::string folder_name(std::int64_t step) {
  return fmt::format("{}{:08}", kPrefix, step);
}

std::string temporary_name(std::int64_t step, std::int64_t attempt) {
  return fmt::format("{}{}{}", folder_name(step), kTemporary, attempt);
}

std::optional<std::int64_t> step_of(std::string_view folder) noexcept {
  if (!folder.starts_with(kPrefix)) {
    return std::nullopt;
  }
  folder.remove_prefix(kPrefix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(folder.data(), folder.data() + folder.size(), step);
  const bool whole = error == std::errc{} && end == folder.data() + folder.size();
  return whole ? std::optional(step) : std::nullopt;
}

void remove_old(const fs::path& root, std::int64_t saved, const SaveOptions& options) {
  std::vector<CheckpointInfo> complete = list_checkpoints(root);
  std::erase_if(complete, [](const CheckpointInfo& info) { return !info.complete; });
  const std::optional<std::int64_t> best = best_of(complete, options.keep_best);
  const std::size_t kept = std::min(complete.size(), static_cast<std::size_t>(options.keep_last));
  complete.resize(complete.size() - kept);
  std::erase_if(complete, [&](const CheckpointInfo& info) {
    const bool for_good = options.keep_every && info.step % *options.keep_every == 0;
    return info.step == saved || for_good || info.step == best;
  });
  for (const CheckpointInfo& info : complete) {
    // Renamed first: a removal that is cut short must not look like a damaged checkpoint.
    const fs::path leaving = root / fmt::format("{}{}old", folder_name(info.step), kTemporary);
    std::error_code error;
    fs::rename(info.path, leaving, error);
    if (error) {
      log::warn("[checkpoint] cannot remove {}: {}", info.path.string(), error.message());
    }
  }
  for (const fs::path& path : entries(root)) {
    if (is_leftover(path.filename().string())) {
      remove_or_warn(path);
    }
  }
}

}  // namespace detail

CheckpointChoice choose_checkpoints(const fs::path& root, std::string_view advice) {
  CheckpointChoice choice;
  for (const CheckpointInfo& info : std::views::reverse(list_checkpoints(root))) {
    if (info.complete) {
      choice.candidates.push_back(info);
    } else if (choice.candidates.empty()) {
      // Passing it over would train its steps again and save over it.
      check(info.unreadable.empty(), ErrorKind::checkpoint, info.unreadable, "{}", info.problem);
      choice.damaged.push_back(info);
    }
  }
  check(!choice.candidates.empty() || choice.damaged.empty(),
        ErrorKind::checkpoint,
        "checkpoint-damaged",
        "{} holds only damaged checkpoints:{}\n  fix   {}",
        root.string(),
        list_damage(choice.damaged),
        advice);
  return choice;
}

fs::path find_checkpoint(const fs::path& given) {
  // "step-00001000/" has no file name.
  const fs::path path = given.has_filename() ? given : given.parent_path();
  std::error_code told_below;
  if (fs::exists(path / detail::kManifestName, told_below) ||
      detail::step_of(path.filename().string())) {
    return path;
  }
  // Not is_directory(): one that cannot be read must not be passed over.
  const fs::file_status inner = fs::status(path / "checkpoints", told_below);
  const fs::path root = inner.type() == fs::file_type::not_found ? path : path / "checkpoints";
  const CheckpointChoice choice = choose_checkpoints(root);
  check(
      !choice.candidates.empty(),
      ErrorKind::checkpoint,
      "checkpoint-none",
      "no checkpoint in {}\n  fix   name a run directory or one of its checkpoints/step-* folders",
      root.string());
  const fs::path& newest = choice.candidates.front().path;
  check(choice.damaged.empty(),
        ErrorKind::checkpoint,
        "checkpoint-incomplete",
        "the newest checkpoint of {} is damaged:{}\n  fix   name the newest complete one, {}",
        root.string(),
        list_damage(choice.damaged),
        newest.string());
  return newest;
}

std::vector<CheckpointInfo> list_checkpoints(const fs::path& root) {
  std::vector<CheckpointInfo> found;
  for (const fs::path& path : entries(root)) {
    if (const std::optional<std::int64_t> step = detail::step_of(path.filename().string())) {
      found.push_back(examine(path, *step));
    }
  }
  std::ranges::sort(found, {}, &CheckpointInfo::step);
  return found;
}

}  // namespace colossal
