// What does srun tell its tasks? Lists of hosts and of tasks in Slurm's short notation.
#include "comm/detail/launchers.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

namespace colossal::detail {
namespace {

constexpr std::size_t kMostHosts = 1'000'000;
/// Ids from here on are no steps of srun: the batch script itself, an interactive shell.
constexpr std::int64_t kSpecialSteps = 4'294'967'000;

[[noreturn]] void refuse(std::string_view list, std::string_view what) {
  fail(ErrorKind::environment,
       "launch-env",
       "Slurm's list '{}' is malformed: {}\n  fix   start with srun, which sets it",
       list,
       what);
}

/// A whole number of at most nine digits.
std::int64_t number_in(std::string_view list, std::string_view digits) {
  std::int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, failure] = std::from_chars(digits.data(), end, value);
  constexpr std::size_t kMostDigits = 9;
  const bool plain = !digits.empty() && digits.find_first_not_of("0123456789") == digits.npos;
  if (!plain || digits.size() > kMostDigits || failure != std::errc() || stop != end) {
    refuse(list, fmt::format("'{}' is no number", digits));
  }
  return value;
}

/// Splits at commas that are not in brackets.
std::vector<std::string_view> items_of(std::string_view list) {
  std::vector<std::string_view> items;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i == list.size() || (list[i] == ',' && depth == 0)) {
      items.push_back(list.substr(begin, i - begin));
      begin = i + 1;
      continue;
    }
    depth += list[i] == '[' ? 1 : list[i] == ']' ? -1 : 0;
    if (depth < 0 || depth > 1) {
      refuse(list, "its brackets do not match");
    }
  }
  if (depth != 0) {
    refuse(list, "its brackets do not match");
  }
  return items;
}

/// "01-03" and "07" as texts of their own width: 01, 02, 03, 07.
void append_range(std::string_view list, std::string_view range, std::vector<std::string>& all) {
  const std::size_t dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  const std::string_view last = dash == range.npos ? first : range.substr(dash + 1);
  const std::int64_t from = number_in(list, first);
  const std::int64_t to = number_in(list, last);
  if (to < from || static_cast<std::size_t>(to - from) >= kMostHosts) {
    refuse(list, fmt::format("'{}' is no range", range));
  }
  for (std::int64_t i = from; i <= to; ++i) {
    all.push_back(fmt::format("{:0{}}", i, first.size()));
  }
}

/// The texts that one pair of brackets stands for.
std::vector<std::string> choices_of(std::string_view list, std::string_view inside) {
  std::vector<std::string> choices;
  std::size_t begin = 0;
  while (begin <= inside.size()) {
    const std::size_t comma = std::min(inside.find(',', begin), inside.size());
    append_range(list, inside.substr(begin, comma - begin), choices);
    begin = comma + 1;
  }
  return choices;
}

/// Every text of `starts` followed by `middle` and every one of `choices`, which count fastest.
std::vector<std::string> extended(const std::vector<std::string>& starts,
                                  std::string_view middle,
                                  const std::vector<std::string>& choices) {
  std::vector<std::string> longer;
  longer.reserve(starts.size() * choices.size());
  for (const std::string& start : starts) {
    for (const std::string& choice : choices) {
      longer.push_back(fmt::format("{}{}{}", start, middle, choice));
    }
  }
  return longer;
}

/// One item, which may have several pairs of brackets.
void append_hosts(std::string_view list, std::string_view item, std::vector<std::string>& hosts) {
  if (item.empty()) {
    refuse(list, "a host without a name");
  }
  std::vector<std::string> made = {""};
  while (!item.empty()) {
    const std::size_t open = item.find('[');
    const std::size_t close = item.find(']');
    const bool ends = open == item.npos;
    const std::vector<std::string> choices =
        ends ? std::vector<std::string>{""}
             : choices_of(list, item.substr(open + 1, close - open - 1));
    if (made.size() * choices.size() + hosts.size() > kMostHosts) {
      refuse(list, "more than a million hosts");
    }
    made = extended(made, item.substr(0, open), choices);
    item = ends ? std::string_view() : item.substr(close + 1);
  }
  hosts.insert(hosts.end(), made.begin(), made.end());
}

/// 2 of "(x2)".
std::int64_t repeats_of(std::string_view list, std::string_view repeat) {
  if (!repeat.starts_with("(x") || !repeat.ends_with(")")) {
    refuse(list, fmt::format("'{}' is not (xTIMES)", repeat));
  }
  return number_in(list, repeat.substr(2, repeat.size() - 3));
}

/// Tasks on this node, from the list of all nodes if there is one.
std::int64_t local_tasks(VariableReader& reader, std::int64_t num_tasks) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const std::optional<std::string> list = variable(name);
    if (!list) {
      continue;
    }
    const std::vector<int> tasks = slurm_tasks(*list);
    if (tasks.size() == 1) {
      return tasks.front();
    }
    const std::int64_t node = reader.number("SLURM_NODEID", 0, std::ssize(tasks) - 1);
    return tasks[static_cast<std::size_t>(node)];
  }
  return reader.number_of({"SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"}, 1, num_tasks);
}

}  // namespace

std::vector<std::string> slurm_hosts(std::string_view list) {
  std::vector<std::string> hosts;
  for (const std::string_view item : items_of(list)) {
    append_hosts(list, item, hosts);
  }
  return hosts;
}

std::vector<int> slurm_tasks(std::string_view list) {
  std::vector<int> tasks;
  for (const std::string_view item : items_of(list)) {
    const std::size_t open = item.find('(');
    const std::int64_t count = number_in(list, item.substr(0, open));
    const std::int64_t times = open == item.npos ? 1 : repeats_of(list, item.substr(open));
    if (times < 1 || count < 1 || std::ssize(tasks) + times > kMostRanks) {
      refuse(list, fmt::format("'{}' is no number of tasks", item));
    }
    tasks.insert(tasks.end(), static_cast<std::size_t>(times), static_cast<int>(count));
  }
  return tasks;
}

bool in_slurm_step() {
  const std::optional<std::string> step = variable("SLURM_STEP_ID");
  std::int64_t id = std::numeric_limits<std::int64_t>::max();
  if (step) {
    std::from_chars(step->data(), step->data() + step->size(), id);
  }
  return variable("SLURM_PROCID") && (variable("SLURM_STEP_NUM_TASKS") || id < kSpecialSteps);
}

LaunchOptions slurm_launch() {
  LaunchOptions options;
  VariableReader reader;
  const std::int64_t size =
      reader.number_of({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, 1, kMostRanks);
  const std::int64_t rank = reader.number("SLURM_PROCID", 0, size - 1);
  const std::int64_t local_size = local_tasks(reader, size);
  const std::int64_t local_rank = reader.number("SLURM_LOCALID", 0, local_size - 1);
  const std::int64_t largest = std::numeric_limits<std::int64_t>::max() / 100;
  const std::int64_t job = reader.number_of({"SLURM_JOB_ID", "SLURM_JOBID"}, 0, largest);
  const std::int64_t step = reader.number_of({"SLURM_STEP_ID", "SLURM_STEPID"}, 0, largest);
  const bool one_machine = local_size == size;
  const bool short_list = !variable("SLURM_STEP_NODELIST") && variable("SLURM_NODELIST");
  const std::string nodes =
      one_machine ? "" : reader.text(short_list ? "SLURM_NODELIST" : "SLURM_STEP_NODELIST");
  reader.finish("start with srun, or choose another launcher with --launch");
  options.rank = static_cast<int>(rank);
  options.world_size = static_cast<int>(size);
  options.local_rank = static_cast<int>(local_rank);
  options.local_world_size = static_cast<int>(local_size);
  options.mode = "slurm";
  options.origin = fmt::format("{} tasks of Slurm step {}.{}", size, job, step);
  options.job = fmt::format("slurm {}.{}", job, step);
  options.address = one_machine ? "127.0.0.1" : slurm_hosts(nodes).front();
  options.port = job_port(static_cast<std::uint64_t>(job) * 97 + static_cast<std::uint64_t>(step));
  return options;
}

}  // namespace colossal::detail
