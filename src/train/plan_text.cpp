// How is a plan told to people and to programs?
#include "mesh/layout.hpp"
#include "train/human.hpp"
#include "train/plan_report.hpp"
#include "train/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace colossal {
namespace {

std::string bytes_text(std::int64_t bytes) {
  return human_binary(static_cast<double>(bytes));
}

std::string steps_line(const PlanReport& plan) {
  const std::string tokens = thousands(plan.tokens_per_step);
  if (plan.total_steps == 0) {
    return fmt::format(
        "steps     unknown until the data is read ({} {} per step)\n", tokens, plan.unit);
  }
  return fmt::format("steps     {}  ({} {}, {} per {}step{}{})\n",
                     thousands(plan.total_steps),
                     thousands(plan.total_tokens),
                     plan.unit,
                     tokens,
                     plan.batch_ramp.empty() ? "" : "full ",
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
  return fmt::format("work      {} FLOP per step; {} in {} of at most {}\n",
                     human_count(plan.flops_per_step),
                     comm,
                     counted(plan.num_chunks, "chunk"),
                     bytes_text(plan.chunk_bytes));
}

using Row = TableRow;

/// Columns that are all zero in most runs, and are left out then.
struct Extras {
  bool borrowed = false, host = false, disk = false;
};

Extras extras_of(const PlanReport& plan) {
  Extras extras;
  for (const RankBytes& rank : plan.ranks) {
    extras.borrowed = extras.borrowed || rank.borrowed != 0;
    extras.host = extras.host || rank.host.total() != 0;
    extras.disk = extras.disk || rank.nvme != 0;
  }
  return extras;
}

Row titles(const Extras& extras) {
  Row row{"rank", "node", "gpu", "dp", "pp", "sp", "tp", "params", "weights", "grads", "optim"};
  row.insert(row.end(), {"activ.", "buffers"});
  if (extras.borrowed) {
    row.emplace_back("borrowed");
  }
  row.emplace_back("total / capacity");
  if (extras.host) {
    row.emplace_back("host");
  }
  if (extras.disk) {
    row.emplace_back("disk");
  }
  return row;
}

/// Where a rank is: its machine, its device ("-": it has none of its own) and its coordinates.
Row place_of(const PlanReport& plan, int rank) {
  const Mesh mesh({.dp = plan.data, .pp = plan.pipeline, .sp = plan.sequence, .t0 = plan.tensor},
                  rank);
  const int node = plan.ranks_per_node > 0 ? rank / plan.ranks_per_node : 0;
  Row row{std::to_string(rank), std::to_string(node), "-"};
  for (const Axis axis : {Axis::dp, Axis::pp, Axis::sp, Axis::t0}) {
    row.push_back(std::to_string(mesh.coord(axis)));
  }
  return row;
}

Row row_of(const PlanReport& plan, const RankBytes& rank, const Extras& extras) {
  Row row = place_of(plan, rank.rank);
  row.push_back(human_count(static_cast<double>(rank.parameters)));
  for (const std::int64_t bytes :
       {rank.weights, rank.grads, rank.optimizer, rank.activations, rank.buffers}) {
    row.push_back(bytes_text(bytes));
  }
  if (extras.borrowed) {
    row.push_back(bytes_text(rank.borrowed));
  }
  const std::string capacity = plan.device_memory > 0 ? bytes_text(plan.device_memory) : "-";
  row.push_back(fmt::format("{} / {}", bytes_text(rank.total()), capacity));
  if (extras.host) {
    row.push_back(bytes_text(rank.host.total()));
  }
  if (extras.disk) {
    row.push_back(bytes_text(rank.nvme));
  }
  return row;
}

/// The rank map of all ranks, as far as people read it.
std::string rank_table(const PlanReport& plan) {
  constexpr std::size_t kMaxRankLines = 64;
  constexpr std::size_t kFirstWidth = 8;  // "rank" begins where the other lines' values do not
  const Extras extras = extras_of(plan);
  std::vector<Row> rows{titles(extras)};
  for (std::size_t i = 0; i < std::min(plan.ranks.size(), kMaxRankLines); ++i) {
    rows.push_back(row_of(plan, plan.ranks[i], extras));
  }
  std::string text = to_table(rows, {.first_width = kFirstWidth});
  if (plan.ranks.size() > kMaxRankLines) {
    text += fmt::format("... and {} more ranks (all in --format json)\n",
                        plan.ranks.size() - kMaxRankLines);
  }
  return text;
}

/// "weights 1.0 MiB, buffers 4.0 KiB", without what is not there.
std::string parts_text(std::initializer_list<std::pair<std::string_view, std::int64_t>> parts) {
  std::string text;
  for (const auto& [name, bytes] : parts) {
    if (bytes != 0) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, bytes_text(bytes));
    }
  }
  return text;
}

std::string host_parts(const RankBytes& rank) {
  const HostBytes& host = rank.host;
  const std::string text = parts_text({{"weights", host.weights},
                                       {"gradients", host.grads},
                                       {"optimizer", host.optimizer},
                                       {"inputs of blocks that run again", host.inputs},
                                       {"buffers", host.buffers}});
  return rank.moved == 0 ? text
                         : fmt::format("{}; after the first step the device takes {} of it",
                                       text,
                                       bytes_text(rank.moved));
}

std::string disk_parts(const RankBytes& rank) {
  return parts_text({{"optimizer", rank.nvme}});
}

/// What a column of the rank map consists of: a line for all ranks that hold the same there.
std::string parts_lines(const PlanReport& plan,
                        std::string_view column,
                        std::string (*parts_of)(const RankBytes&)) {
  struct Line {
    std::string parts;
    int first_rank = 0;
    int num_more = 0;
  };
  std::vector<Line> lines;
  for (const RankBytes& rank : plan.ranks) {
    std::string parts = parts_of(rank);
    const auto same = std::ranges::find(lines, parts, &Line::parts);
    if (same == lines.end()) {
      lines.push_back({.parts = std::move(parts), .first_rank = rank.rank});
    } else {
      ++same->num_more;
    }
  }
  std::string text;
  for (const Line& line : lines) {
    const std::string more =
        line.num_more > 0 ? fmt::format(" and {} more", line.num_more) : std::string();
    const std::string who =
        lines.size() == 1 ? "a rank" : fmt::format("rank {}{}", line.first_rank, more);
    text += line.parts.empty() ? "" : fmt::format("{:<10}{}: {}\n", column, who, line.parts);
  }
  return text;
}

/// The folder itself, or the nearest one above it that exists: where it will lie.
std::filesystem::path existing_part(const std::filesystem::path& folder) {
  std::error_code failed;
  std::filesystem::path path = std::filesystem::absolute(folder, failed);
  while (!std::filesystem::exists(path, failed) && path.has_relative_path()) {
    path = path.parent_path();
  }
  return path;
}

std::string checkpoint_line(const PlanReport& plan) {
  const auto each = static_cast<double>(plan.checkpoint_bytes);
  std::string text =
      plan.saved_bytes == 0
          ? fmt::format("checkpoint  none, but ~{} if a signal or a job's deadline stops the run",
                        human_bytes(each))
          : fmt::format("checkpoint  ~{} each, keep {} -> peak ~{}",
                        human_bytes(each),
                        plan.keeps,
                        human_bytes(each * static_cast<double>(plan.most_checkpoints)));
  if (!plan.output_dir.empty()) {
    std::error_code failed;
    const std::filesystem::path folder = existing_part(plan.output_dir);
    const auto space = std::filesystem::space(folder, failed);
    text += fmt::format("; free on {}: {}",
                        folder.string(),
                        failed ? "unknown" : human_bytes(static_cast<double>(space.available), 0));
  }
  return plan.saves_aside
             ? text + fmt::format("; async: copies of up to {} in host memory", human_bytes(each))
             : text;
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
  text += plan.batch_ramp.empty() ? "" : fmt::format("ramp      {}\n", plan.batch_ramp);
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
  text += parts_lines(plan, "host", host_parts) + parts_lines(plan, "disk", disk_parts);
  return text + checkpoint_line(plan);
}

nlohmann::ordered_json bytes_json(const RankBytes& rank) {
  const HostBytes& host = rank.host;
  return {{"weights", rank.weights},
          {"grads", rank.grads},
          {"optimizer", rank.optimizer},
          {"activations", rank.activations},
          {"borrowed", rank.borrowed},
          {"buffers", rank.buffers},
          {"host", host.total()},
          {"host_parts",
           {{"weights", host.weights},
            {"grads", host.grads},
            {"optimizer", host.optimizer},
            {"inputs", host.inputs},
            {"buffers", host.buffers}}},
          {"moved", rank.moved},
          {"nvme", rank.nvme},
          {"nvme_parts", {{"optimizer", rank.nvme}}}};
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
                                   {"accumulation", plan.accumulation},
                                   {"ramp", plan.batch_ramp}}},
                                 {"total_steps", plan.total_steps},
                                 {"total_tokens", plan.total_tokens},
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
                                 {"most_checkpoints", plan.most_checkpoints},
                                 {"data", plan.data_lines},
                                 {"ranks", nlohmann::ordered_json::array()}};
  for (const RankBytes& rank : plan.ranks) {
    nlohmann::ordered_json& row = json["ranks"].emplace_back(
        nlohmann::ordered_json{{"rank", rank.rank}, {"parameters", rank.parameters}});
    row.update(bytes_json(rank));
    row["total"] = rank.total();
  }
  return json.dump(2);
}

}  // namespace colossal
