// How does rank 0 judge the group? Every rank publishes a member record; rank 0 compares them and
// publishes a verdict.
#include "comm/detail/group_check.hpp"

#include "comm/detail/peers.hpp"
#include "core/error.hpp"
#include "core/system.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace colossal::detail {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kVerdictKey = "verdict";
constexpr const char* kGood = "good";
/// Raised whenever the keys or texts that ranks exchange change.
constexpr int kProtocol = 5;
/// So many keys of two configurations are shown; the first ones explain the others.
constexpr std::size_t kMostKeys = 10;

std::string member_key(int rank) {
  return fmt::format("member/{}", rank);
}

std::string config_key(int rank) {
  return fmt::format("config/{}", rank);
}

struct Member {
  std::string host;
  long pid = 0;
  int local_rank = 0;
  /// Build id and protocol: what must be one program.
  std::string build;
  std::string config_hash;
  std::string gpu_uuid;  ///< empty: it computes on a CPU
  std::string gpu_name;
};

std::string to_text(const Member& member) {
  return fmt::format("{}\n{} {}\n{}\n{}\n{}\n{}\n",
                     member.host,
                     member.pid,
                     member.local_rank,
                     member.build,
                     member.config_hash,
                     member.gpu_uuid,
                     member.gpu_name);
}

Member parse_member(const std::string& text) {
  std::istringstream in(text);
  Member member;
  std::getline(in, member.host);
  in >> member.pid >> member.local_rank >> std::ws;
  std::getline(in, member.build);
  std::getline(in, member.config_hash);
  std::getline(in, member.gpu_uuid);
  std::getline(in, member.gpu_name);
  return member;
}

Member describe_self(const LaunchOptions& launch, const Identity& identity) {
  return {host_name(),
          ::getpid(),
          launch.local_rank,
          fmt::format("{} (protocol {})", identity.build_id, kProtocol),
          identity.config_hash,
          identity.gpu_uuid,
          identity.gpu_name};
}

/// Objections travel as text, with their author's token, so that exactly one process tells it.
std::string to_text(const Objection& objection, const std::string& author) {
  return fmt::format("{} {} {} {} {}",
                     static_cast<int>(objection.kind),
                     objection.id,
                     objection.rank,
                     author,
                     objection.message);
}

Objection parse_objection(const std::string& text, const std::string& self) {
  std::istringstream in(text);
  int kind = 0;
  std::string author;
  Objection objection;
  in >> kind >> objection.id >> objection.rank >> author >> std::ws;
  std::getline(in, objection.message, '\0');
  objection.kind = static_cast<ErrorKind>(kind);
  objection.mine = author == self;
  return objection;
}

Objection missing_ranks(Store& store, int world_size, std::chrono::milliseconds timeout) {
  std::vector<int> missing;
  std::set<std::string> hosts;
  for (int rank = 0; rank < world_size; ++rank) {
    if (const auto text = store.get(member_key(rank))) {
      hosts.insert(parse_member(*text).host);
    } else {
      missing.push_back(rank);
    }
  }
  return {
      ErrorKind::comm,
      "rendezvous",
      fmt::format(
          "{} {} of {} did not arrive within {} s (arrived from: {})\n  fix   start the missing "
          "processes, or raise parallel.comm.init_timeout",
          missing.size() == 1 ? "rank" : "ranks",
          fmt::join(missing, ", "),
          world_size,
          static_cast<double>(timeout.count()) / 1000.0,
          fmt::join(hosts, ", ")),
      missing.empty() ? 0 : missing.front()};
}

/// Lines `key = value`, by key.
std::map<std::string, std::string> parse_keys(const std::string& text) {
  constexpr std::string_view kSign = " = ";
  std::map<std::string, std::string> values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t sign = line.find(kSign);
    if (sign != std::string::npos) {
      values.emplace(line.substr(0, sign), line.substr(sign + kSign.size()));
    }
  }
  return values;
}

/// One line for each key whose values differ: "train.steps = 20 on rank 1, 10 on rank 0".
std::vector<std::string> differing_keys(const std::string& theirs,
                                        const std::string& first,
                                        std::size_t rank) {
  constexpr const char* kAbsent = "no key";
  const std::map<std::string, std::string> here = parse_keys(theirs);
  const std::map<std::string, std::string> there = parse_keys(first);
  std::map<std::string, std::pair<std::string, std::string>> values;
  for (const auto& [key, value] : here) {
    values[key] = {value, kAbsent};
  }
  for (const auto& [key, value] : there) {
    const auto [it, fresh] = values.try_emplace(key, kAbsent, value);
    it->second.second = value;
  }
  std::vector<std::string> lines;
  for (const auto& [key, pair] : values) {
    if (pair.first != pair.second) {
      lines.push_back(
          fmt::format("{} = {} on rank {}, {} on rank 0", key, pair.first, rank, pair.second));
    }
  }
  return lines;
}

/// What people need to see of two configurations with different hashes.
std::string explain_difference(Store& store, const std::vector<Member>& members, std::size_t rank) {
  const std::string start =
      fmt::format("rank {} on {}: configuration differs from rank 0", rank, members[rank].host);
  const auto theirs = store.get(config_key(static_cast<int>(rank)));
  const auto first = store.get(config_key(0));
  const std::vector<std::string> keys =
      theirs && first ? differing_keys(*theirs, *first, rank) : std::vector<std::string>{};
  if (keys.empty()) {
    return fmt::format("{} (hash {} vs {}); give every rank the same file and --set options",
                       start,
                       members[rank].config_hash,
                       members[0].config_hash);
  }
  std::string text = fmt::format("{} in {} key{}", start, keys.size(), keys.size() == 1 ? "" : "s");
  for (std::size_t i = 0; i < std::min(keys.size(), kMostKeys); ++i) {
    text += "\n  key   " + keys[i];
  }
  if (keys.size() > kMostKeys) {
    text += fmt::format("\n  ...   and {} more", keys.size() - kMostKeys);
  }
  return text + "\n  fix   give every rank the same file and --set options";
}

/// Ranks that cannot work as one group: on a CPU beside a GPU, on unequal GPUs, or two on one.
std::optional<Objection> compare_gpus(const std::vector<Member>& members) {
  std::map<std::pair<std::string, std::string>, std::size_t> cards;  // by host and card
  const auto named = [](const Member& member) {
    return member.gpu_name.empty() ? std::string("a CPU") : member.gpu_name;
  };
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const Member& member = members[rank];
    if (member.gpu_name != members[0].gpu_name) {
      return Objection{
          ErrorKind::comm,
          "gpu-differs",
          fmt::format(
              "rank {} on {} computes on {}, rank 0 on {} on {}: the slowest would hold up "
              "all\n  fix   choose equal GPUs with CUDA_VISIBLE_DEVICES, or run.device: cpu",
              rank,
              member.host,
              named(member),
              members[0].host,
              named(members[0])),
          static_cast<int>(rank)};
    }
    if (member.gpu_uuid.empty()) {
      continue;
    }
    const auto [first, fresh] = cards.try_emplace({member.host, member.gpu_uuid}, rank);
    if (!fresh) {
      return Objection{
          ErrorKind::comm,
          "gpu-shared",
          fmt::format("ranks {} and {} on {} use the same GPU ({}, {})\n  fix   start one process "
                      "a GPU and number those of a machine with LOCAL_RANK from 0, or set "
                      "run.device: cpu",
                      first->second,
                      rank,
                      member.host,
                      member.gpu_name,
                      member.gpu_uuid),
          static_cast<int>(rank)};
    }
  }
  return std::nullopt;
}

std::optional<Objection> compare(Store& store, const std::vector<Member>& members) {
  std::set<std::pair<std::string, int>> places;
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const Member& member = members[rank];
    if (member.build != members[0].build) {
      return Objection{
          ErrorKind::comm,
          "build-differs",
          fmt::format("rank {} on {} runs build {}, rank 0 on {} runs {}; start the same "
                      "binary everywhere",
                      rank,
                      member.host,
                      member.build,
                      members[0].host,
                      members[0].build),
          static_cast<int>(rank)};
    }
    if (member.config_hash != members[0].config_hash) {
      return Objection{ErrorKind::config,
                       "config-differs",
                       explain_difference(store, members, rank),
                       static_cast<int>(rank)};
    }
    if (!places.emplace(member.host, member.local_rank).second) {
      return Objection{
          ErrorKind::comm,
          "local-rank",
          fmt::format("two ranks on {} have LOCAL_RANK {}; rank {} is the second; number "
                      "the processes of a machine from 0",
                      member.host,
                      member.local_rank,
                      rank),
          static_cast<int>(rank)};
    }
  }
  return compare_gpus(members);
}

/// Rank 0: waits for all members, unless somebody objects before.
void judge(Store& store,
           int world_size,
           std::chrono::milliseconds timeout,
           const std::string& author) {
  const auto deadline = Clock::now() + timeout;
  std::vector<Member> members;
  while (std::ssize(members) < world_size) {
    if (const auto text = store.get(member_key(static_cast<int>(members.size())))) {
      members.push_back(parse_member(*text));
    } else if (store.get(kVerdictKey) || reported_failure(store)) {
      return;
    } else if (Clock::now() > deadline) {
      store.set_if_absent(kVerdictKey, to_text(missing_ranks(store, world_size, timeout), author));
      return;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  const auto objection = compare(store, members);
  store.set_if_absent(kVerdictKey, objection ? to_text(*objection, author) : kGood);
}

/// What rank 0 or somebody before it says, or the failure of a rank that will never arrive.
std::optional<Objection> await_verdict(Store& store,
                                       int world_size,
                                       std::chrono::milliseconds timeout,
                                       const std::string& author) {
  constexpr std::chrono::milliseconds kLook{200};
  // Rank 0 may have started its own wait later than this rank did, and lists the missing ranks for
  // all.
  const auto patience = timeout + std::chrono::seconds(5);
  const auto deadline = Clock::now() + patience;
  while (!store.wait(kVerdictKey, kLook)) {
    const std::optional<Failure> failure = reported_failure(store);
    if (failure && !store.get(kVerdictKey)) {  // who objects reports that too, a moment later
      return Objection{ErrorKind::comm, failure->id, failure->text, failure->rank};
    }
    if (Clock::now() > deadline) {
      store.set_if_absent(kVerdictKey, to_text(missing_ranks(store, world_size, patience), author));
    }
  }
  const auto verdict = store.get(kVerdictKey);
  return verdict && *verdict != kGood ? std::optional(parse_objection(*verdict, author))
                                      : std::nullopt;
}

/// A second process that claims a rank: it stops itself, and the run if that has not started yet.
Objection refuse_duplicate(int rank, const Member& first, const Member& second) {
  return {
      ErrorKind::comm,
      "duplicate-rank",
      fmt::format("rank {} exists twice: process {} on {} and process {} on {}; give every process "
                  "its own RANK, and every job its own MASTER_PORT",
                  rank,
                  first.pid,
                  first.host,
                  second.pid,
                  second.host),
      rank,
      true};
}

}  // namespace

std::optional<Objection> check_group(Store& store,
                                     const LaunchOptions& launch,
                                     const Identity& identity,
                                     std::chrono::milliseconds timeout) {
  const Member self = describe_self(launch, identity);
  const std::string author =
      fmt::format("{}:{}:{}:{}", self.host, self.pid, launch.rank, self.local_rank);
  const std::string mine = to_text(self);
  if (!identity.config_keys.empty()) {  // before the record that sends rank 0 to read it
    store.set_if_absent(config_key(launch.rank), identity.config_keys);
  }
  const std::string winner = store.set_if_absent(member_key(launch.rank), mine);
  if (winner != mine) {
    const Objection objection = refuse_duplicate(launch.rank, parse_member(winner), self);
    store.set_if_absent(kVerdictKey, to_text(objection, author));
    return objection;
  }
  if (launch.rank == 0) {
    judge(store, launch.world_size, timeout, author);
  }
  return await_verdict(store, launch.world_size, timeout, author);
}

}  // namespace colossal::detail
