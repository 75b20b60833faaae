// How is an estimate told to people and to programs?
#include "train/estimate.hpp"
#include "train/human.hpp"
#include "train/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace colossal {
namespace {

using Json = nlohmann::ordered_json;

std::string size_text(std::int64_t bytes) {
  return bytes == 0 ? "-" : human_binary(static_cast<double>(bytes));
}

std::string capacity_text(const Capacity& capacity) {
  const std::string host =
      capacity.host > 0 ? fmt::format("{} of this machine for all ranks", size_text(capacity.host))
                        : "";
  if (capacity.device > 0) {
    return fmt::format("{} a device ({}){}{}",
                       size_text(capacity.device),
                       capacity.device_name,
                       host.empty() ? "" : ", ",
                       host);
  }
  return host.empty() ? "unknown: give --gpu-memory" : host;
}

/// Columns that are empty in most estimates, and are left out then.
struct Extras {
  bool batch = false, host = false, disk = false, moved = false;
};

Extras extras_of(const Estimate& estimate) {
  const auto any = [&](auto has) { return std::ranges::any_of(estimate.rows, has); };
  return {
      .batch =
          any([&](const EstimateRow& row) { return row.global_batch != estimate.global_batch; }),
      .host = any([](const EstimateRow& row) { return row.bytes.host.total() > 0; }),
      .disk = any([](const EstimateRow& row) { return row.bytes.nvme > 0; }),
      .moved =
          any([](const EstimateRow& row) { return row.reduced_bytes + row.gathered_bytes > 0; })};
}

TableRow titles(const Extras& extras) {
  TableRow row = {"world", "policy", "recompute", "micro x accum"};
  if (extras.batch) {
    row.emplace_back("samples/step");
  }
  row.emplace_back("device");
  if (extras.host) {
    row.emplace_back("host");
  }
  if (extras.disk) {
    row.emplace_back("disk");
  }
  if (extras.moved) {
    row.insert(row.end(), {"reduced/step", "gathered/step"});
  }
  row.emplace_back("fits");
  return row;
}

TableRow table_row(const EstimateRow& layout, const Extras& extras) {
  TableRow row = {std::to_string(layout.world),
                  layout.policy,
                  layout.recompute,
                  fmt::format("{} x {}", layout.micro_batch, layout.accumulation)};
  if (extras.batch) {
    row.push_back(thousands(layout.global_batch));
  }
  row.push_back(size_text(layout.bytes.total()));
  if (extras.host) {
    row.push_back(size_text(layout.bytes.host.total()));
  }
  if (extras.disk) {
    row.push_back(size_text(layout.bytes.nvme));
  }
  if (extras.moved) {
    row.push_back(size_text(layout.reduced_bytes));
    row.push_back(size_text(layout.gathered_bytes));
  }
  row.emplace_back(!layout.fits ? "?" : *layout.fits ? "yes" : "OOM");
  return row;
}

/// Each reason once, with the number of its layouts.
std::string impossible_text(const Estimate& estimate) {
  std::vector<std::pair<std::string, int>> reasons;
  for (const ImpossibleLayout& layout : estimate.impossible) {
    const auto known =
        std::ranges::find(reasons, layout.reason, &std::pair<std::string, int>::first);
    if (known == reasons.end()) {
      reasons.emplace_back(layout.reason, 1);
    } else {
      ++known->second;
    }
  }
  std::string text;
  for (const auto& [reason, count] : reasons) {
    text += fmt::format("left out  {} layout{}: {}\n", count, count == 1 ? "" : "s", reason);
  }
  return text;
}

}  // namespace

std::string to_text(const Estimate& estimate) {
  const Extras extras = extras_of(estimate);
  std::vector<TableRow> rows = {titles(extras)};
  for (const EstimateRow& layout : estimate.rows) {
    rows.push_back(table_row(layout, extras));
  }
  return fmt::format("estimate  {}  {} samples a step; capacity {}\n",
                     estimate.name,
                     thousands(estimate.global_batch),
                     capacity_text(estimate.capacity)) +
         (estimate.rows.empty() ? "" : to_table(rows, {.left = 3})) + impossible_text(estimate);
}

std::string to_json(const Estimate& estimate) {
  Json json = {
      {"name", estimate.name},
      {"global_batch", estimate.global_batch},
      {"capacity", {{"device", estimate.capacity.device}, {"host", estimate.capacity.host}}},
      {"rows", Json::array()},
      {"impossible", Json::array()}};
  for (const EstimateRow& row : estimate.rows) {
    Json& layout = json["rows"].emplace_back(Json{{"world", row.world},
                                                  {"set", row.sets},
                                                  {"policy", row.policy},
                                                  {"recompute", row.recompute},
                                                  {"global_batch", row.global_batch},
                                                  {"micro_batch", row.micro_batch},
                                                  {"accumulation", row.accumulation},
                                                  {"device", row.bytes.total()}});
    layout.update(bytes_json(row.bytes));
    layout["comm_bytes_per_step"] = row.reduced_bytes;
    layout["gather_bytes_per_step"] = row.gathered_bytes;
    layout["fits"] = row.fits ? Json(*row.fits) : Json(nullptr);
  }
  for (const ImpossibleLayout& layout : estimate.impossible) {
    json["impossible"].push_back(
        {{"world", layout.world}, {"set", layout.sets}, {"reason", layout.reason}});
  }
  return json.dump(2);
}

}  // namespace colossal
