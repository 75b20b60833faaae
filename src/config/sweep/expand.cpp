// How do grids, lists and distributions become trials?
#include "config/sweep/expand.hpp"

#include "config/sweep/draw.hpp"
#include "config/sweep/values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace colossal::detail {
namespace {

constexpr std::size_t kMostTrials = 10'000;

/// A dimension of a grid: what each of its points sets.
using GridAxis = std::vector<Assignments>;

/// Whether `inner` is `outer` or a key inside of it.
bool is_inside(std::string_view inner, std::string_view outer) {
  return inner.starts_with(outer) &&
         (inner.size() == outer.size() || inner[outer.size()] == '.' || inner[outer.size()] == '[');
}

/// Looks at the keys of mappings: which of them a sweep may set, and that none is set twice.
class KeyChecker {
 public:
  explicit KeyChecker(Report& report) : report_(report) {}

  /// The entries of a mapping whose keys are those of a configuration; none after an error.
  std::vector<const Node*> entries(const Node& map, std::string_view path) {
    if (map.kind != Node::Kind::map) {
      report_
          .error("wrong-type",
                 path,
                 map.origin,
                 fmt::format("{} holds {}, not a mapping", path, kind_text(map)))
          .fix = "write {key: ..., key: ...}";
      return {};
    }
    std::vector<const Node*> found;
    for (const Node& entry : map.children) {
      if (!reserved(entry)) {
        found.push_back(&entry);
      }
    }
    return found;
  }

  /// Reports sweep-key-twice if `key` is inside of one that was seen, or the other way round.
  void once(const Node& entry) {
    for (const Node* other : seen_) {
      if (!is_inside(entry.key, other->key) && !is_inside(other->key, entry.key)) {
        continue;
      }
      Diagnostic& error = report_.error(
          "sweep-key-twice",
          entry.key,
          entry.key_origin,
          entry.key == other->key
              ? fmt::format("{} is set twice", entry.key)
              : fmt::format(
                    "{} and {} are both set, and one holds the other", other->key, entry.key));
      error.related.push_back({other->key, flow_text(*other), other->key_origin});
      error.fix = "remove one of them";
    }
    seen_.push_back(&entry);
  }

  void forget() { seen_.clear(); }

 private:
  bool reserved(const Node& entry) {
    constexpr std::array<std::string_view, 4> kReserved = {
        "run.output_dir", "run.name", "checkpoint.resume", "vars"};
    const auto taken = std::find_if(kReserved.begin(), kReserved.end(), [&](std::string_view key) {
      return entry.key == key || is_inside(key, entry.key);
    });
    if (taken == kReserved.end()) {
      return false;
    }
    Diagnostic& error = report_.error("sweep-reserved",
                                      entry.key,
                                      entry.key_origin,
                                      fmt::format("a sweep cannot set {}", entry.key));
    error.why = fmt::format(
        "each trial has a folder of its own and continues there: {} is the "
        "sweep's",
        *taken);
    error.fix = "remove it, or name the keys inside of it one by one";
    return true;
  }

  Report& report_;
  std::vector<const Node*> seen_;
};

/// The items of a list of values; none after an error.
std::span<const Node> values_of(const Node& entry, Report& report) {
  if (entry.kind == Node::Kind::list && !entry.children.empty()) {
    return entry.children;
  }
  report
      .error("wrong-type",
             entry.key,
             entry.origin,
             fmt::format("{} has {}, not a list of values", entry.key, kind_text(entry)))
      .fix = fmt::format("write {}: [value, value]", entry.key);
  return {};
}

/// The items of `list` if it is one; a null node is an empty list.
std::span<const Node> items_of(const Node& list, Report& report) {
  if (list.kind == Node::Kind::list || list.kind == Node::Kind::null) {
    return list.children;
  }
  report
      .error("wrong-type",
             list.key,
             list.origin,
             fmt::format("{} is {}, not a list", list.key, kind_text(list)))
      .fix = fmt::format("write {}: [{{...}}, {{...}}]", list.key);
  return {};
}

GridAxis axis_of(const Node& entry, Report& report) {
  GridAxis axis;
  for (const Node& value : values_of(entry, report)) {
    axis.push_back({{entry.key, value}});
  }
  return axis;
}

/// One axis for the keys of a block, whose lists must be equally long.
GridAxis zipped_axis(const Node& block, KeyChecker& keys, Report& report) {
  GridAxis axis;
  const Node* first = nullptr;
  for (const Node* entry : keys.entries(block, "zip")) {
    keys.once(*entry);
    const std::span<const Node> values = values_of(*entry, report);
    if (first == nullptr) {
      first = entry;
      axis.resize(values.size());
    }
    if (values.size() != axis.size()) {
      Diagnostic& error = report.error("sweep-zip",
                                       entry->key,
                                       entry->origin,
                                       fmt::format("{} has {} values and {} has {}",
                                                   entry->key,
                                                   values.size(),
                                                   first->key,
                                                   axis.size()));
      error.why = "keys of one block move together";
      error.related.push_back({first->key, flow_text(*first), first->origin});
      error.fix = "give both as many values, or move one key to parameters";
      return {};
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      axis[i].push_back({entry->key, values[i]});
    }
  }
  return axis;
}

bool matches(const Assignments& trial, const Node& entry) {
  return std::any_of(trial.begin(), trial.end(), [&](const Assignment& one) {
    return one.key == entry.key && plain_json(one.value) == plain_json(entry);
  });
}

/// Whether a trial has all values of an entry of `exclude`.
bool is_named(const Assignments& trial, const std::vector<const Node*>& entries) {
  return !entries.empty() && std::all_of(entries.begin(), entries.end(), [&](const Node* entry) {
    return matches(trial, *entry);
  });
}

/// Removes the trials that `exclude` names.
void leave_out(std::vector<Assignments>& trials, const Node& exclude, Report& report) {
  KeyChecker keys(report);
  for (const Node& one : items_of(exclude, report)) {
    const std::vector<const Node*> entries = keys.entries(one, "exclude");
    if (std::erase_if(trials, [&](const auto& trial) { return is_named(trial, entries); }) > 0) {
      continue;
    }
    Diagnostic& error = report.error(
        "exclude-unused", "exclude", one.origin, fmt::format("{} names no trial", flow_text(one)));
    error.why = "all of its keys must have these values in a trial that is not left out already";
    error.fix = "remove it, or use values that parameters or zip have";
  }
}

/// Every trial so far with every point of one more axis.
std::vector<Assignments> with_axis(const std::vector<Assignments>& trials, const GridAxis& axis) {
  std::vector<Assignments> longer;
  longer.reserve(trials.size() * axis.size());
  for (const Assignments& trial : trials) {
    for (const Assignments& point : axis) {
      Assignments& both = longer.emplace_back(trial);
      both.insert(both.end(), point.begin(), point.end());
    }
  }
  return longer;
}

bool too_many(std::size_t count, const Origin& place, Report& report) {
  if (count <= kMostTrials) {
    return false;
  }
  report
      .error("sweep-too-large",
             "",
             place,
             fmt::format("the sweep has {} trials or more; {} are the most", count, kMostTrials))
      .fix = "fewer values or samples, or several sweeps";
  return true;
}

std::vector<Assignments> expand_grid(const SweepFile& file, Report& report) {
  KeyChecker keys(report);
  std::vector<GridAxis> axes;
  if (file.parameters.kind != Node::Kind::null) {
    for (const Node* entry : keys.entries(file.parameters, "parameters")) {
      keys.once(*entry);
      axes.push_back(axis_of(*entry, report));
    }
  }
  for (const Node& block : items_of(file.zip, report)) {
    axes.push_back(zipped_axis(block, keys, report));
  }
  std::size_t count = 1;
  for (const GridAxis& axis : axes) {
    count *= axis.size();
    if (too_many(count, file.place, report)) {
      return {};
    }
  }
  if (report.has_errors() || axes.empty()) {
    return {};
  }
  std::vector<Assignments> trials = {{}};
  for (const GridAxis& axis : axes) {
    trials = with_axis(trials, axis);
  }
  leave_out(trials, file.exclude, report);
  return trials;
}

std::vector<Assignments> expand_list(const SweepFile& file, Report& report) {
  KeyChecker keys(report);
  std::vector<Assignments> trials;
  const std::span<const Node> items = items_of(file.trials, report);
  if (too_many(items.size(), file.place, report)) {
    return {};
  }
  for (const Node& item : items) {
    Assignments& trial = trials.emplace_back();
    keys.forget();
    for (const Node* entry : keys.entries(item, "trials")) {
      keys.once(*entry);
      trial.push_back({entry->key, *entry});
    }
  }
  return trials;
}

std::vector<Assignments> expand_random(const SweepFile& file, Report& report) {
  if (file.parameters.kind == Node::Kind::null) {
    return {};
  }
  KeyChecker keys(report);
  const std::vector<const Node*> entries = keys.entries(file.parameters, "parameters");
  for (const Node* entry : entries) {
    keys.once(*entry);
    check_distribution(*entry, report);
  }
  const auto samples = static_cast<std::size_t>(file.samples.value_or(0));
  if (too_many(samples, file.place, report) || report.has_errors()) {
    return {};
  }
  std::vector<Assignments> trials(samples);
  for (std::size_t i = 0; i < samples; ++i) {
    for (const Node* entry : entries) {
      trials[i].push_back({entry->key, draw(*entry, file.seed, i)});
    }
  }
  return trials;
}

}  // namespace

std::vector<Assignments> expand(const SweepFile& file, Report& report) {
  std::vector<Assignments> trials = file.method == SweepMethod::grid ? expand_grid(file, report)
                                    : file.method == SweepMethod::list
                                        ? expand_list(file, report)
                                        : expand_random(file, report);
  if (trials.empty() && !report.has_errors()) {
    report.error("sweep-empty", "", file.place, "the sweep has no trial").fix =
        "give parameters, zip or trials at least one value that exclude leaves";
  }
  return trials;
}

}  // namespace colossal::detail
