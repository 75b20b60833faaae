// How is the end of a run told to people and to programs?
#include "train/summary.hpp"

#include "core/system.hpp"

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
    const std::string quality =
        summary.eval_accuracy ? fmt::format("accuracy {:.2f}%", 100 * *summary.eval_accuracy)
                              : fmt::format("perplexity {:.2f}", std::exp(*summary.eval_loss));
    text += fmt::format(
        "{}validation loss {:.4f} ({})", text.empty() ? "" : ", ", *summary.eval_loss, quality);
  }
  return text.empty() ? "none" : text;
}

std::string next_text(const RunSummary& summary) {
  if (summary.checkpoint.empty()) {
    return "next      nothing was saved (checkpoint.at_end is false): there is nothing to continue "
           "or evaluate";
  }
  if (summary.step < summary.total_steps) {
    return "next      the same command continues this run";
  }
  const std::string sample =
      summary.generates ? fmt::format("\ntry       {} generate --checkpoint {} --prompt \"And \"",
                                      program_command(),
                                      summary.output_dir.string())
                        : "";
  return fmt::format(
      "next      {0} eval --checkpoint {1}      loss on the evaluation data\n"
      "          {0} inspect {1} --tensors     what the checkpoint holds\n"
      "          the same command with a longer train section continues this run{2}",
      program_command(),
      summary.output_dir.string(),
      sample);
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
      "{}{}"
      "metrics   {}\n"
      "saved     {}\n{}",
      summary.reason,
      summary.step,
      summary.total_steps,
      summary.seconds,
      summary.startup_seconds,
      100 * summary.hook_share,
      summary.memory ? to_text(*summary.memory) + "\n" : "",
      summary.utilization ? "mfu       " + to_text(*summary.utilization) + "\n" : "",
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
  if (summary.eval_accuracy) {
    json["eval_accuracy"] = *summary.eval_accuracy;
  }
  json["seconds"] = summary.seconds;
  json["startup_seconds"] = summary.startup_seconds;
  json["hook_share"] = summary.hook_share;
  if (summary.memory) {
    json["device_peak"] = summary.memory->device_peak;
    json["host_peak"] = summary.memory->host_peak;
    json["gathered_peak"] = summary.memory->gathered_peak;
    json["nvme_peak"] = summary.memory->nvme_peak;
    json["device_planned"] = summary.memory->planned;
  }
  if (summary.utilization) {
    json["mfu_palm"] = summary.utilization->share();
    json["flops_per_token"] = summary.utilization->flops_per_token();
  }
  json["output_dir"] = summary.output_dir.string();
  json["checkpoint"] = summary.checkpoint.string();
  return json.dump();
}

}  // namespace colossal
