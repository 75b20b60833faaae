// Which lines are held for a moment, and how are equal ones merged?
#include "comm/detail/launch_output.hpp"

#include "core/log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace colossal::detail {
namespace {

/// Ranks that hit the same trouble say so within this time.
constexpr std::chrono::milliseconds kMoment{300};
/// Ranks hear of an error through their heartbeat, of 2 s; after it nothing more comes that could
/// be delayed.
constexpr std::chrono::milliseconds kErrorMoment{3'000};

bool is_error(std::string_view text) {
  return log::error_message_at(text) != std::string_view::npos;
}

bool holds_rank(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

std::string_view without_newline(std::string_view text) {
  return text.substr(0, text.find_last_not_of("\r\n") + 1);
}

/// The log of a rank prefixes its own lines; third-party output comes without.
std::string_view without_prefix(int rank, std::string_view text) {
  const std::string prefix = fmt::format("[rank {}] ", rank);
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

}  // namespace

std::string short_list(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
      ++last;
    }
    text += text.empty() ? "" : ",";
    text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

LaunchOutput::LaunchOutput(int num_ranks, Writer writer)
    : writer_(std::move(writer)), last_error_(static_cast<std::size_t>(num_ranks)) {}

void LaunchOutput::line(int rank, Stream stream, std::string_view text, Clock::time_point now) {
  const std::string_view bare = without_prefix(rank, without_newline(text));
  if (stream == Stream::err) {
    remember(rank, log::plain_line(bare));
  }
  if (passes(rank, stream, bare)) {
    writer_(stream, text);
    return;
  }
  for (Held& held : held_) {
    if (held.text == bare && !holds_rank(held.ranks, rank)) {
      held.ranks.push_back(rank);
      return;
    }
  }
  held_.push_back({std::string(bare), {rank}, now + (is_error(bare) ? kErrorMoment : kMoment)});
}

bool LaunchOutput::passes(int rank, Stream stream, std::string_view text) const {
  if (stream == Stream::err && text.starts_with(R"({"kind":")")) {
    return true;  // an object that names its rank
  }
  if (rank != 0 || stream == Stream::out) {
    return rank == 0;
  }
  // What rank 0 writes after a held line must not overtake it.
  const bool overtakes = std::any_of(
      held_.begin(), held_.end(), [](const Held& held) { return holds_rank(held.ranks, 0); });
  return !overtakes && !is_error(text) && !text.starts_with("warning: ");
}

void LaunchOutput::flush(Clock::time_point now) {
  while (!held_.empty() && held_.front().due <= now) {
    write(held_.front());
    held_.pop_front();
  }
}

void LaunchOutput::flush_all() {
  for (const Held& held : std::exchange(held_, {})) {
    write(held);
  }
}

void LaunchOutput::remember(int rank, std::string_view text) {
  std::string& last = last_error_[static_cast<std::size_t>(rank)];
  const bool says_error = text.find("error") != std::string_view::npos;
  if (!text.empty() && (says_error || last.find("error") == std::string::npos)) {
    last = text;
  }
}

void LaunchOutput::write(const Held& held) const {
  const bool only_first = held.ranks.size() == 1 && held.ranks.front() == 0;
  const std::string prefix = only_first ? std::string()
                                        : fmt::format("[{} {}] ",
                                                      held.ranks.size() == 1 ? "rank" : "ranks",
                                                      short_list(held.ranks));
  writer_(Stream::err, fmt::format("{}{}\n", prefix, held.text));
}

const std::string& LaunchOutput::last_error(int rank) const {
  return last_error_[static_cast<std::size_t>(rank)];
}

}  // namespace colossal::detail
