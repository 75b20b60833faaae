// What happens around every collective of a group: numbering, counting, waiting and blaming.
#include "comm/detail/group.hpp"

#include <algorithm>
#include <utility>

namespace colossal::detail {

Group::Group(std::string name, int rank) : name_(std::move(name)), ranks_{rank}, rank_(0) {}

Group::Group(std::string name,
             std::vector<int> ranks,
             int rank,
             std::unique_ptr<Backend> backend,
             std::shared_ptr<Session> session)
    : name_(std::move(name)),
      ranks_(std::move(ranks)),
      rank_(rank),
      session_(std::move(session)),
      backend_(std::move(backend)) {}

Collective Group::enter(std::string_view op, std::int64_t bytes) {
  if (kept_) {
    throw *kept_;
  }
  check(backend_ != nullptr,
        ErrorKind::internal,
        "group-closed",
        "{} on group {} after World::close()",
        op,
        name_);
  count(op, bytes);
  Collective collective{name_, std::string(op), ++sequence_, bytes};
  session_->progress.enter(collective);
  return collective;
}

void Group::count(std::string_view op, std::int64_t bytes) {
  const auto it = std::find_if(counters_.begin(), counters_.end(), [&](const CommCounter& counter) {
    return counter.label == op;
  });
  CommCounter& counter =
      it != counters_.end() ? *it : counters_.emplace_back(CommCounter{std::string(op), 0, 0});
  ++counter.calls;
  counter.bytes += bytes;
}

void Group::wait(Work& work, const Collective& collective) {
  bool in_time = false;
  try {
    in_time = work.wait(session_->timeouts.collective);
  } catch (const Error& error) {
    fail_broken(collective, error);
  }
  if (!in_time) {
    session_->fail_timeout(collective, ranks_);
  }
}

void Group::watch(const Work& work, const Collective& collective) {
  if (WorkProbe probe = work.probe()) {
    session_->device_works.add({.collective = collective,
                                .ranks = ranks_,
                                .probe = std::move(probe),
                                .entered = std::chrono::steady_clock::now()});
  }
}

void Group::fail_broken(const Collective& collective, const Error& error) {
  session_->fail_broken(collective, ranks_, error.what());
}

void Group::keep(const Error& error) {
  if (!kept_) {
    kept_ = error;
  }
}

void Group::close() {
  backend_.reset();
}

}  // namespace colossal::detail
