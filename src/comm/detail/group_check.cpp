// How does rank 0 judge the group? Every rank publishes a member record; rank 0 compares them and
// publishes a verdict.
#include "comm/detail/group_check.hpp"

#include "core/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <sstream>
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
constexpr int kProtocol = 1;

std::string member_key(int rank) {
  return fmt::format("member/{}", rank);
}

struct Member {
  std::string host;
  long pid = 0;
  int local_rank = 0;
  /// Build id and protocol: what must be one program.
  std::string build;
  std::string config_hash;
};

std::string to_text(const Member& member) {
  return fmt::format("{}\n{} {}\n{}\n{}\n",
                     member.host,
                     member.pid,
                     member.local_rank,
                     member.build,
                     member.config_hash);
}

Member parse_member(const std::string& text) {
  std::istringstream in(text);
  Member member;
  std::getline(in, member.host);
  in >> member.pid >> member.local_rank >> std::ws;
  std::getline(in, member.build);
  std::getline(in, member.config_hash);
  return member;
}

Member describe_self(const LaunchOptions& launch, const Identity& identity) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return {host.data(),
          ::getpid(),
          launch.local_rank,
          fmt::format("{} (protocol {})", identity.build_id, kProtocol),
          identity.config_hash};
}

/// Why the run cannot start. Travels as text so that every rank throws the same error.
struct Objection {
  ErrorKind kind = ErrorKind::comm;
  std::string id;
  std::string message;
};

std::string to_text(const Objection& objection) {
  return fmt::format("{} {} {}", static_cast<int>(objection.kind), objection.id, objection.message);
}

[[noreturn]] void throw_objection(const std::string& text) {
  std::istringstream in(text);
  int kind = 0;
  std::string id;
  std::string message;
  in >> kind >> id >> std::ws;
  std::getline(in, message, '\0');
  fail(static_cast<ErrorKind>(kind), id, "{}", message);
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
      fmt::format("{} {} of {} did not arrive within {} s (arrived from: {}); start the missing "
                  "processes or raise comm.init_timeout",
                  missing.size() == 1 ? "rank" : "ranks",
                  fmt::join(missing, ", "),
                  world_size,
                  static_cast<double>(timeout.count()) / 1000.0,
                  fmt::join(hosts, ", "))};
}

std::optional<Objection> compare(const std::vector<Member>& members) {
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
                      members[0].build)};
    }
    if (member.config_hash != members[0].config_hash) {
      return Objection{
          ErrorKind::config,
          "config-differs",
          fmt::format("rank {} on {}: configuration differs from rank 0 (hash {} vs {}); "
                      "give every rank the same file and --set options",
                      rank,
                      member.host,
                      member.config_hash,
                      members[0].config_hash)};
    }
    if (!places.emplace(member.host, member.local_rank).second) {
      return Objection{
          ErrorKind::comm,
          "local-rank",
          fmt::format("two ranks on {} have LOCAL_RANK {}; rank {} is the second; number "
                      "the processes of a machine from 0",
                      member.host,
                      member.local_rank,
                      rank)};
    }
  }
  return std::nullopt;
}

/// Rank 0: waits for all members, unless somebody objects before.
void judge(Store& store, int world_size, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  std::vector<Member> members;
  while (std::ssize(members) < world_size) {
    if (const auto text = store.get(member_key(static_cast<int>(members.size())))) {
      members.push_back(parse_member(*text));
    } else if (store.get(kVerdictKey)) {
      return;
    } else if (Clock::now() > deadline) {
      store.set_if_absent(kVerdictKey, to_text(missing_ranks(store, world_size, timeout)));
      return;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  const auto objection = compare(members);
  store.set_if_absent(kVerdictKey, objection ? to_text(*objection) : kGood);
}

/// A second process that claims a rank: it stops itself, and the run if that has not started yet.
void refuse_duplicate(Store& store, int rank, const Member& first, const Member& second) {
  const Objection objection{
      ErrorKind::comm,
      "duplicate-rank",
      fmt::format("rank {} exists twice: process {} on {} and process {} on {}; give every process "
                  "its own RANK, and every job its own MASTER_PORT",
                  rank,
                  first.pid,
                  first.host,
                  second.pid,
                  second.host)};
  store.set_if_absent(kVerdictKey, to_text(objection));
  throw_objection(to_text(objection));
}

}  // namespace

void check_group(Store& store,
                 const LaunchOptions& launch,
                 const Identity& identity,
                 std::chrono::milliseconds timeout) {
  const Member self = describe_self(launch, identity);
  const std::string mine = to_text(self);
  const std::string winner = store.set_if_absent(member_key(launch.rank), mine);
  if (winner != mine) {
    refuse_duplicate(store, launch.rank, parse_member(winner), self);
  }
  if (launch.rank == 0) {
    judge(store, launch.world_size, timeout);
  }
  // Rank 0 may have started its own wait later than this rank did, and lists the missing ranks for
  // all.
  const auto patience = timeout + std::chrono::seconds(5);
  if (!store.wait(kVerdictKey, patience)) {
    store.set_if_absent(kVerdictKey, to_text(missing_ranks(store, launch.world_size, patience)));
  }
  const auto verdict = store.get(kVerdictKey);
  if (verdict && *verdict != kGood) {
    throw_objection(*verdict);
  }
}

}  // namespace colossal::detail
