// How is the nearest key found?
#include "config/suggest.hpp"

#include "config/tree.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace colossal::detail {
namespace {

/// Names of DeepSpeed, Megatron-LM, Hugging Face, nanoGPT and others. `*` at the end matches any
/// rest.
constexpr std::array<std::pair<std::string_view, std::string_view>, 30> kForeignNames = {{
    {"learning_rate", "optimizer.lr"},
    {"batch_size", "train.global_batch_size"},
    {"train_batch_size", "train.global_batch_size"},
    {"train_micro_batch_size_per_gpu", "train.micro_batch_size"},
    {"per_device_train_batch_size", "train.micro_batch_size"},
    {"num_microbatches", "train.gradient_accumulation"},
    {"grad_accum*", "train.gradient_accumulation"},
    {"gradient_accumulation_steps", "train.gradient_accumulation"},
    {"fp16", "train.precision"},
    {"bf16", "train.precision"},
    {"amp", "train.precision"},
    {"dtype", "train.precision"},
    {"dp", "parallel.data"},
    {"zero_stage", "parallel.zero.stage"},
    {"max_steps", "train.steps"},
    {"train_iters", "train.steps"},
    {"num_train_epochs", "train.epochs"},
    {"clip_grad", "train.clip_grad_norm"},
    {"max_norm", "train.clip_grad_norm"},
    {"max_grad_norm", "train.clip_grad_norm"},
    {"gradient_clipping", "train.clip_grad_norm"},
    {"save_interval", "checkpoint.every_steps"},
    {"save_steps", "checkpoint.every_steps"},
    {"eval_interval", "eval.every_steps"},
    {"log_interval", "logging.every_steps"},
    {"n_layer", "model.num_layers"},
    {"d_model", "model.hidden_size"},
    {"n_embd", "model.hidden_size"},
    {"n_head", "model.num_heads"},
    {"block_size", "data.seq_length"},
}};

std::string last_component(std::string_view path) {
  return std::string(path.substr(path.rfind('.') + 1));
}

/// A path whose last component is nearest to `key`; exact matches first.
std::optional<std::string> nearest_path(std::string_view key, std::span<const std::string> paths) {
  std::vector<std::string> last;
  std::transform(paths.begin(), paths.end(), std::back_inserter(last), last_component);
  const auto best = nearest(key, last);
  if (!best) {
    return std::nullopt;
  }
  const auto it = std::find(last.begin(), last.end(), *best);
  return paths[static_cast<std::size_t>(it - last.begin())];
}

std::optional<std::string> foreign(std::string_view key) {
  for (const auto& [name, target] : kForeignNames) {
    const bool prefix = name.ends_with('*');
    if (prefix ? key.starts_with(name.substr(0, name.size() - 1)) : key == name) {
      return std::string(target);
    }
  }
  return std::nullopt;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    last[j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      const std::size_t replaced = swapped ? before[j - 2] + 1 : last[j - 1] + cost;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + cost, replaced});
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::optional<std::string> suggest_key(std::string_view section,
                                       std::string_view key,
                                       std::span<const std::string> siblings,
                                       std::span<const std::string> paths) {
  if (const auto target = foreign(key)) {
    return target;
  }
  if (key == "include") {
    return join_path(section, "extends");
  }
  if (const auto sibling = nearest(key, siblings)) {
    return join_path(section, *sibling);
  }
  return nearest_path(key, paths);
}

}  // namespace colossal::detail

namespace colossal {

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
  constexpr std::size_t kLongest = 64;  // longer input is no typo
  // Two changes make "eps" of "pp".
  const std::size_t limit = word.size() < 4 ? 1 : std::max<std::size_t>(2, word.size() / 3);
  std::optional<std::string> best;
  std::size_t best_distance = limit + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance =
        word.size() > kLongest ? limit + 1 : detail::edit_distance(word, candidate);
    // A word shorter than the distance would turn into anything.
    if (distance < best_distance && distance < std::max(word.size(), candidate.size())) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::vector<std::string> files_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<std::string> nearest_file(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  const fs::path folder = path.parent_path();
  std::error_code ignored;
  if (!folder.empty() && !fs::exists(folder, ignored)) {
    const auto meant = nearest_file(folder);
    const fs::path there = meant ? *meant / path.filename() : fs::path();
    return fs::exists(there, ignored) ? std::optional(there.string()) : std::nullopt;
  }
  const std::vector<std::string> names = files_in(folder);
  const std::string name = path.filename().string();
  const auto longer = std::find_if(names.begin(), names.end(), [&](const std::string& other) {
    return fs::path(other).stem() == name;  // only the ending was left out
  });
  const auto best = longer == names.end() ? nearest(name, names) : std::optional(*longer);
  return best && !name.empty() ? std::optional((folder / *best).string()) : std::nullopt;
}

}  // namespace colossal
