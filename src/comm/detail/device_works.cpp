// When is a collective of a GPU forgotten, and when is it too late?
#include "comm/detail/device_works.hpp"

#include <utility>

namespace colossal::detail {

void DeviceWorks::add(DeviceWork work) {
  const std::lock_guard lock(mutex_);
  while (!works_.empty() && works_.front().probe() == WorkState::done) {
    works_.pop_front();
  }
  works_.push_back(std::move(work));
}

std::optional<TroubledWork> DeviceWorks::trouble(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  const auto latest = std::chrono::steady_clock::now() - timeout;
  while (!works_.empty()) {
    const WorkState state = works_.front().probe();
    if (state == WorkState::broken) {
      return TroubledWork{works_.front(), true};
    }
    if (state == WorkState::running) {
      // Groups have streams of their own, but a step waits for all: the oldest speaks for them.
      return works_.front().entered < latest ? std::optional(TroubledWork{works_.front(), false})
                                             : std::nullopt;
    }
    works_.pop_front();
  }
  return std::nullopt;
}

}  // namespace colossal::detail
