// How is the end of a run told to people and to programs?
#include "train/summary.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace colossal {
namespace {

std::string metrics_text(const RunSummary& summary) {
  std::string text;
  if (summary.loss) {
    text = fmt::format("loss {:.4f}", *summary.loss);
  }
  if (summary.eval_loss) {
    text += fmt::format("{}validation loss {:.4f} (perplexity {:.2f})",
                        text.empty() ? "" : ", ",
                        *summary.eval_loss,
                        std::exp(*summary.eval_loss));
  }
  return text.empty() ? "none" : text;
}

std::string next_text(const RunSummary& summary) {
  if (summary.checkpoint.empty()) {
    return "next      nothing was saved (checkpoint.at_end is false): there is nothing to continue "
           "or evaluate";
  }
  const std::string directory = summary.output_dir.string();
  return fmt::format(
      "next      colossal-train eval --checkpoint {0}      loss on the evaluation data\n"
      "          colossal-train inspect {0} --tensors     what the checkpoint holds\n"
      "          the same command with a larger train.steps continues this run",
      directory);
}

nlohmann::ordered_json to_json(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace

std::string to_text(const RunSummary& summary) {
  const std::string saved = summary.checkpoint.string();
  return fmt::format(
      "end       {} at step {} of {}\n"
      "time      {:.1f} s in all, {:.2f} s from process start to first step, {:.2f}% of the loop "
      "in "
      "hooks\n"
      "metrics   {}\n"
      "saved     {}\n{}",
      summary.reason,
      summary.step,
      summary.total_steps,
      summary.seconds,
      summary.startup_seconds,
      100 * summary.hook_share,
      metrics_text(summary),
      saved.empty() ? "nothing" : saved,
      next_text(summary));
}

std::string to_json_line(const RunSummary& summary) {
  nlohmann::ordered_json json;
  json["reason"] = summary.reason;
  json["step"] = summary.step;
  json["total_steps"] = summary.total_steps;
  json["loss"] = to_json(summary.loss);
  json["eval_loss"] = to_json(summary.eval_loss);
  json["seconds"] = summary.seconds;
  json["startup_seconds"] = summary.startup_seconds;
  json["hook_share"] = summary.hook_share;
  json["output_dir"] = summary.output_dir.string();
  json["checkpoint"] = summary.checkpoint.string();
  return json.dump();
}

}  // namespace colossal
