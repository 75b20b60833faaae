// How do spans become tracks and shares?
#include "train/profile.hpp"

#include "core/error.hpp"
#include "train/human.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

namespace colossal {
namespace {

using trace::Phase;
using trace::Recording;
using trace::Span;

constexpr std::uint32_t kTrainingTrack = 0;
constexpr std::uint32_t kFirstLane = 1000;  // tracks of collectives, behind those of threads

std::size_t index(Phase phase) {
  return static_cast<std::size_t>(phase);
}

double seconds(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-9;
}

double microseconds(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-3;
}

/// "forward block 3 mb 1".
std::string label(const Span& span) {
  if (!span.text.empty()) {
    return span.text;
  }
  std::string text(trace::name(span.phase));
  if (span.block >= 0) {
    text += fmt::format(" block {}", span.block);
  }
  if (span.micro_batch >= 0) {
    text += fmt::format(" mb {}", span.micro_batch);
  }
  return text;
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

/// Writes events one a line.
class TraceWriter {
 public:
  explicit TraceWriter(int rank) : rank_(rank) {}

  void name(std::string_view what, std::uint32_t track, const std::string& value) {
    add(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})",
        what,
        rank_,
        track,
        quoted(value));
  }
  void sort(std::uint32_t track, std::uint32_t place) {
    add(R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
        rank_,
        track,
        place);
  }
  void complete(const Span& span, std::uint32_t track) {
    const std::string args =
        span.bytes >= 0 ? fmt::format(R"(,"args":{{"bytes":{}}})", span.bytes) : std::string();
    add(R"({{"ph":"X","name":{},"cat":"{}","ts":{:.3f},"dur":{:.3f},"pid":{},"tid":{}{}}})",
        quoted(label(span)),
        trace::name(span.phase),
        microseconds(span.begin),
        microseconds(span.end - span.begin),
        rank_,
        track,
        args);
  }
  void memory(const trace::MemorySample& sample) {
    add(R"({{"ph":"C","name":"resident memory","ts":{:.3f},"pid":{},"args":{{"bytes":{}}}}})",
        microseconds(sample.time),
        rank_,
        sample.bytes);
  }
  [[nodiscard]] std::string text() const {
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + events_ + "\n]}\n";
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    events_ += events_.empty() ? "" : ",\n";
    fmt::format_to(std::back_inserter(events_), format, std::forward<Args>(args)...);
  }

  int rank_;
  std::string events_;
};

/// Spans that `wanted` selects, outer ones before the inner ones that begin with them.
template <class Predicate>
std::vector<const Span*> select(const Recording& recording, Predicate wanted) {
  std::vector<const Span*> spans;
  for (const Span& span : recording.spans) {
    if (wanted(span)) {
      spans.push_back(&span);
    }
  }
  std::stable_sort(spans.begin(), spans.end(), [](const Span* a, const Span* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end > b->end;
  });
  return spans;
}

bool is_communication(const Span& span) {
  return span.phase == Phase::communication;
}

/// Collectives under way together do not nest: each goes to the first lane that is free.
void write_communication(TraceWriter& writer, const Recording& recording) {
  std::vector<std::int64_t> free_from;  // by lane
  for (const Span* span : select(recording, is_communication)) {
    const auto lane = std::find_if(
        free_from.begin(), free_from.end(), [&](std::int64_t time) { return time <= span->begin; });
    const auto track = kFirstLane + static_cast<std::uint32_t>(lane - free_from.begin());
    if (lane == free_from.end()) {
      writer.name("thread_name", track, "communication");
      writer.sort(track, track);
      free_from.push_back(span->end);
    } else {
      *lane = span->end;
    }
    writer.complete(*span, track);
  }
}

void write_threads(TraceWriter& writer, const Recording& recording) {
  std::map<std::uint32_t, std::uint32_t> tracks = {{recording.thread, kTrainingTrack}};
  writer.name("thread_name", kTrainingTrack, "training");
  for (const Span* span : select(recording, [](const Span& s) { return !is_communication(s); })) {
    const auto next = static_cast<std::uint32_t>(tracks.size());
    const auto [track, fresh] = tracks.emplace(span->thread, next);
    if (fresh) {
      writer.name("thread_name", next, fmt::format("thread {}", next));
      writer.sort(next, next);
    }
    writer.complete(*span, track->second);
  }
}

/// Seconds during which at least one of the spans (by their begin) was under way.
double covered(const std::vector<const Span*>& spans) {
  std::int64_t sum = 0;
  std::int64_t end = 0;
  for (const Span* span : spans) {
    sum += std::max<std::int64_t>(0, span->end - std::max(end, span->begin));
    end = std::max(end, span->end);
  }
  return seconds(sum);
}

/// How seconds of a recording become cells of the table.
struct TableScale {
  double milliseconds = 0;  ///< of one second, a step
  double total = 0;         ///< seconds that are 100 %
};

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) {
    sum += value;
  }
  return sum / static_cast<double>(values.size());
}

std::vector<double> totals(const std::vector<PhaseTimes>& ranks) {
  std::vector<double> seconds;
  for (const PhaseTimes& times : ranks) {
    seconds.push_back(times.total);
  }
  return seconds;
}

/// A line with what the ranks took; empty if none took any time.
std::string table_row(std::string_view name,
                      const std::vector<double>& of_rank,
                      const TableScale& scale) {
  const auto slowest = std::max_element(of_rank.begin(), of_rank.end());
  if (*slowest <= 0) {
    return "";
  }
  return fmt::format("\n  {:<14}{:>10.2f}{:>9.1f}%{:>10.2f} on rank {}",
                     name,
                     mean(of_rank) * scale.milliseconds,
                     scale.total > 0 ? 100 * mean(of_rank) / scale.total : 0,
                     *slowest * scale.milliseconds,
                     slowest - of_rank.begin());
}

/// Smallest and largest resident memory of any rank; empty if it was not sampled.
std::string memory_line(const std::vector<PhaseTimes>& ranks) {
  std::int64_t lowest = ranks.front().lowest_memory;
  std::int64_t highest = 0;
  for (const PhaseTimes& times : ranks) {
    lowest = std::min(lowest, times.lowest_memory);
    highest = std::max(highest, times.highest_memory);
  }
  if (highest == 0) {
    return "";
  }
  return fmt::format("\n  resident memory {} to {}",
                     human_gib(static_cast<double>(lowest)),
                     human_gib(static_cast<double>(highest)));
}

}  // namespace

std::string to_chrome_trace(const Recording& recording, int rank) {
  TraceWriter writer(rank);
  writer.name("process_name", kTrainingTrack, fmt::format("rank {}", rank));
  write_threads(writer, recording);
  write_communication(writer, recording);
  for (const trace::MemorySample& sample : recording.memory) {
    writer.memory(sample);
  }
  return writer.text();
}

PhaseTimes phase_times(const Recording& recording) {
  PhaseTimes times;
  times.total = seconds(recording.end - recording.begin);
  times.communication = covered(select(recording, is_communication));
  std::vector<const Span*> open;  // those that hold the current one
  for (const Span* span : select(recording, [&](const Span& s) {
         return s.thread == recording.thread && index(s.phase) < PhaseTimes::kPhases;
       })) {
    while (!open.empty() && open.back()->end <= span->begin) {
      open.pop_back();
    }
    const double length = seconds(span->end - span->begin);
    if (!open.empty()) {
      times.seconds[index(open.back()->phase)] -= length;
    }
    times.seconds[index(span->phase)] += length;
    open.push_back(span);
  }
  for (const trace::MemorySample& sample : recording.memory) {
    times.highest_memory = std::max(times.highest_memory, sample.bytes);
    times.lowest_memory =
        times.lowest_memory == 0 ? sample.bytes : std::min(times.lowest_memory, sample.bytes);
  }
  return times;
}

std::string to_text(const PhaseTimes& times) {
  return nlohmann::json{{"seconds", times.seconds},
                        {"total", times.total},
                        {"communication", times.communication},
                        {"lowest_memory", times.lowest_memory},
                        {"highest_memory", times.highest_memory}}
      .dump();
}

PhaseTimes parse_phase_times(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    PhaseTimes times;
    json.at("seconds").get_to(times.seconds);
    json.at("total").get_to(times.total);
    json.at("communication").get_to(times.communication);
    json.at("lowest_memory").get_to(times.lowest_memory);
    json.at("highest_memory").get_to(times.highest_memory);
    return times;
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::internal, "profile-text", "phase times '{}': {}", text, error.what());
  }
}

std::string phase_table(const std::vector<PhaseTimes>& ranks,
                        std::int64_t first_step,
                        std::int64_t steps) {
  const TableScale scale{.milliseconds = 1000.0 / static_cast<double>(steps),
                         .total = mean(totals(ranks))};
  std::string text =
      fmt::format("profile   steps {} to {}: {:.2f} ms a step\n  {:<14}{:>10}{:>10}{:>10}",
                  first_step,
                  first_step + steps - 1,
                  scale.total * scale.milliseconds,
                  "phase",
                  "ms/step",
                  "share",
                  "longest");
  std::vector<double> rest = totals(ranks);
  for (std::size_t phase = 1; phase < PhaseTimes::kPhases; ++phase) {  // "step" itself is the rest
    std::vector<double> values;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      values.push_back(ranks[rank].seconds[phase]);
      rest[rank] -= values.back();
    }
    text += table_row(trace::name(static_cast<Phase>(phase)), values, scale);
  }
  text += table_row("other", rest, scale);
  std::vector<double> communication;
  for (const PhaseTimes& times : ranks) {
    communication.push_back(times.communication);
  }
  const std::string row = table_row("communication", communication, scale);
  text += row.empty() ? row : row + ", beside the phases: the wait for it is reduce";
  return text + memory_line(ranks);
}

}  // namespace colossal
