// What is behind a Comm? A name, its ranks and, for two or more of them, a backend.
#pragma once

#include "comm/comm.hpp"
#include "comm/detail/backend.hpp"
#include "comm/detail/progress.hpp"
#include "comm/detail/session.hpp"
#include "core/error.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace colossal::detail {

/// One process group. Main thread only.
class Group {
 public:
  /// A group of one rank, which never communicates.
  Group(std::string name, int rank);
  Group(std::string name,
        std::vector<int> ranks,
        int rank,
        std::unique_ptr<Backend> backend,
        std::shared_ptr<Session> session);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::vector<int>& ranks() const noexcept { return ranks_; }
  /// Rank inside the group.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }

  /// Announces the next collective to the peers and counts it.
  /// Errors: internal "group-closed"; the error kept from an earlier collective.
  Collective enter(std::string_view op, std::int64_t bytes);
  [[nodiscard]] Backend& backend() const noexcept { return *backend_; }
  /// Explains an error of the backend. Errors: comm "peer-failed" or "peer-lost".
  [[noreturn]] void fail_broken(const Collective& collective, const Error& error);
  /// Blocks until `work` is done. Errors as Pending::wait.
  void wait(Work& work, const Collective& collective);
  /// Lets the watchdog look after work whose end wait() does not see.
  void watch(const Work& work, const Collective& collective);
  /// Keeps an error that cannot be thrown now; the next start() throws it.
  void keep(const Error& error);
  /// Ends the backend. Later collectives fail.
  void close();

  [[nodiscard]] const std::vector<CommCounter>& counters() const noexcept { return counters_; }

 private:
  void count(std::string_view op, std::int64_t bytes);

  std::string name_;
  std::vector<int> ranks_;
  int rank_;
  std::shared_ptr<Session> session_;
  std::unique_ptr<Backend> backend_;
  std::int64_t sequence_ = 0;
  std::vector<CommCounter> counters_;
  std::optional<Error> kept_;
};

}  // namespace colossal::detail
