// How is a plan told to people and to programs?
#include "train/human.hpp"
#include "train/plan_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

namespace colossal {
namespace {

constexpr std::size_t kMaxRankLines = 16;

std::string bytes_text(std::int64_t bytes) {
  return human_bytes(static_cast<double>(bytes));
}

std::string steps_line(const PlanReport& plan) {
  const std::string tokens = thousands(plan.tokens_per_step);
  if (plan.total_steps == 0) {
    return fmt::format(
        "steps     unknown until the data is read ({} {} per step)\n", tokens, plan.unit);
  }
  return fmt::format("steps     {}  ({} {}, {} per step{}{})\n",
                     thousands(plan.total_steps),
                     thousands(plan.total_steps * plan.tokens_per_step),
                     plan.unit,
                     tokens,
                     plan.steps_note.empty() ? "" : "; ",
                     plan.steps_note);
}

std::string work_line(const PlanReport& plan) {
  std::string comm = plan.comm_bytes_per_step == 0
                         ? "nothing is reduced"
                         : fmt::format("{} of gradients reduced by each rank",
                                       bytes_text(plan.comm_bytes_per_step));
  if (plan.gather_bytes_per_step > 0) {
    comm += fmt::format(", {} of its weights gathered", bytes_text(plan.gather_bytes_per_step));
  }
  return fmt::format("work      {} FLOP per step; {} in {} chunks of at most {}\n",
                     human_count(plan.flops_per_step),
                     comm,
                     plan.num_chunks,
                     bytes_text(plan.chunk_bytes));
}

std::string rank_table(const PlanReport& plan) {
  constexpr std::string_view kRow = "{:<8}{:>9}{:>9}{:>9}{:>9}{:>10}{:>9}{:>9}{:>9}{:>9}{:>9}\n";
  std::string text = fmt::format(fmt::runtime(kRow),
                                 "rank",
                                 "params",
                                 "weights",
                                 "grads",
                                 "optim",
                                 "borrowed",
                                 "activ.",
                                 "buffers",
                                 "total",
                                 "host",
                                 "disk");
  for (std::size_t i = 0; i < std::min(plan.ranks.size(), kMaxRankLines); ++i) {
    const RankBytes& rank = plan.ranks[i];
    text += fmt::format(fmt::runtime(kRow),
                        rank.rank,
                        human_count(static_cast<double>(rank.parameters)),
                        bytes_text(rank.weights),
                        bytes_text(rank.grads),
                        bytes_text(rank.optimizer),
                        bytes_text(rank.borrowed),
                        bytes_text(rank.activations),
                        bytes_text(rank.buffers),
                        bytes_text(rank.total()),
                        bytes_text(rank.host),
                        bytes_text(rank.nvme));
  }
  if (plan.ranks.size() > kMaxRankLines) {
    text += fmt::format("... and {} more ranks (all in --format json)\n",
                        plan.ranks.size() - kMaxRankLines);
  }
  return text;
}

}  // namespace

std::string to_text(const PlanReport& plan) {
  std::string text =
      fmt::format("plan      {}  world {} = data {} x pipeline {} x sequence {} x tensor {}\n",
                  plan.name,
                  plan.world,
                  plan.data,
                  plan.pipeline,
                  plan.sequence,
                  plan.tensor);
  text += fmt::format("batch     {} = data {} x micro {} x accumulation {}\n",
                      plan.global_batch,
                      plan.data,
                      plan.micro_batch,
                      plan.accumulation);
  text += steps_line(plan);
  text += plan.schedule.empty() ? "" : fmt::format("schedule  {}\n", plan.schedule);
  text += fmt::format("model     {} parameters ({})\n",
                      human_count(static_cast<double>(plan.parameters)),
                      plan.model_note);
  text += work_line(plan);
  for (const std::string& line : plan.data_lines) {
    text += fmt::format("data      {}\n", line);
  }
  text += rank_table(plan);
  text += fmt::format("checkpoint  ~{} each, keep {} -> peak ~{}",
                      bytes_text(plan.checkpoint_bytes),
                      plan.keep_last,
                      bytes_text(plan.checkpoint_bytes * (plan.keep_last + 1)));
  return text;
}

std::string to_json(const PlanReport& plan) {
  nlohmann::ordered_json json = {{"name", plan.name},
                                 {"mesh",
                                  {{"world", plan.world},
                                   {"data", plan.data},
                                   {"pipeline", plan.pipeline},
                                   {"sequence", plan.sequence},
                                   {"tensor", plan.tensor}}},
                                 {"batch",
                                  {{"global", plan.global_batch},
                                   {"micro", plan.micro_batch},
                                   {"accumulation", plan.accumulation}}},
                                 {"total_steps", plan.total_steps},
                                 {"steps_note", plan.steps_note},
                                 {"schedule", plan.schedule},
                                 {"tokens_per_step", plan.tokens_per_step},
                                 {"parameters", plan.parameters},
                                 {"vocab", plan.vocab},
                                 {"padded_vocab", plan.padded_vocab},
                                 {"num_chunks", plan.num_chunks},
                                 {"chunk_bytes", plan.chunk_bytes},
                                 {"flops_per_step", plan.flops_per_step},
                                 {"comm_bytes_per_step", plan.comm_bytes_per_step},
                                 {"gather_bytes_per_step", plan.gather_bytes_per_step},
                                 {"checkpoint_bytes", plan.checkpoint_bytes},
                                 {"keep_last", plan.keep_last},
                                 {"data", plan.data_lines},
                                 {"ranks", nlohmann::ordered_json::array()}};
  for (const RankBytes& rank : plan.ranks) {
    json["ranks"].push_back({{"rank", rank.rank},
                             {"parameters", rank.parameters},
                             {"weights", rank.weights},
                             {"grads", rank.grads},
                             {"optimizer", rank.optimizer},
                             {"activations", rank.activations},
                             {"borrowed", rank.borrowed},
                             {"buffers", rank.buffers},
                             {"host", rank.host},
                             {"nvme", rank.nvme},
                             {"total", rank.total()}});
  }
  return json.dump(2);
}

}  // namespace colossal
