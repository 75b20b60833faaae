// How are beats written, read and turned into the name of a culprit?
#include "comm/detail/progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <sstream>

namespace colossal::detail {

std::string to_text(const Beat& beat) {
  std::string text = fmt::format("{} {:.1f} {}\n", beat.count, beat.time, beat.phase);
  for (const auto& [group, entered] : beat.entered) {
    text += fmt::format("{} {} {}\n", entered.sequence, entered.op, group);
  }
  return text;
}

Beat parse_beat(std::string_view text) {
  std::istringstream lines{std::string(text)};
  Beat beat;
  lines >> beat.count >> beat.time;
  lines.ignore();  // one space: a phase may be empty
  std::getline(lines, beat.phase);
  Beat::Entered entered;
  std::string group;
  while (lines >> entered.sequence >> entered.op >> std::ws && std::getline(lines, group)) {
    beat.entered[group] = entered;
  }
  return beat;
}

void Progress::set_phase(std::string_view phase) {
  const std::lock_guard lock(mutex_);
  beat_.phase = phase;
}

void Progress::enter(const Collective& collective) {
  const std::lock_guard lock(mutex_);
  Beat::Entered& entered = beat_.entered[collective.group];
  entered.op = collective.op;
  entered.sequence = collective.sequence;
}

Beat Progress::next_beat() {
  const std::lock_guard lock(mutex_);
  ++beat_.count;
  beat_.time =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return beat_;
}

std::vector<double> silences(const std::vector<Beat>& beats) {
  constexpr double kUsual = 2.5;  // seconds between two beats, and some delay
  double newest = 0;
  for (const Beat& beat : beats) {
    newest = std::max(newest, beat.time);
  }
  std::vector<double> all;
  for (const Beat& beat : beats) {
    const double silence = beat.time > 0 ? newest - beat.time : 0;
    all.push_back(silence > kUsual ? silence : 0);
  }
  return all;
}

Blame blame(const Collective& collective,
            const std::vector<int>& ranks,
            const std::vector<Beat>& beats) {
  std::string text;
  std::optional<int> first;
  const std::vector<double> silent = silences(beats);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto it = beats[i].entered.find(collective.group);
    const Beat::Entered last = it == beats[i].entered.end() ? Beat::Entered{} : it->second;
    const std::string named =
        fmt::format("{} #{} of group {}", collective.op, collective.sequence, collective.group);
    const bool elsewhere = last.sequence == collective.sequence && last.op != collective.op;
    if (!first && (elsewhere || last.sequence < collective.sequence)) {
      first = ranks[i];
    }
    if (last.sequence < collective.sequence) {
      // A rank that does not run says nothing new: its last phase may be long past.
      const std::string where =
          silent[i] > 0
              ? fmt::format("silent for {:.0f} s, last heard in '{}'", silent[i], beats[i].phase)
              : fmt::format("it is in '{}'", beats[i].phase);
      text += fmt::format(
          "{}rank {} never entered {} ({})", text.empty() ? "" : "; ", ranks[i], named, where);
    } else if (elsewhere) {
      text += fmt::format("{}rank {} entered {} #{} instead of {}",
                          text.empty() ? "" : "; ",
                          ranks[i],
                          last.op,
                          last.sequence,
                          named);
    }
  }
  if (!first) {
    text = "every rank has entered it: the connection or a rank is too slow";
  }
  return {text, first};
}

}  // namespace colossal::detail
