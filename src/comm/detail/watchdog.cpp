// How does a rank find out that another one failed, and how does it leave?
#include "comm/detail/watchdog.hpp"

#include "core/error.hpp"
#include "core/log.hpp"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <utility>

namespace colossal::detail {

Watchdog::Watchdog(std::unique_ptr<Store> store,
                   const WatchdogOptions& options,
                   Progress& progress,
                   FailureNotice& notice)
    : store_(std::move(store)), options_(options), progress_(progress), notice_(notice) {
  if (options_.rank != 0) {
    watched_.push_back(0);
  } else {
    for (int rank = 1; rank < options_.size; ++rank) {
      watched_.push_back(rank);
    }
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void Watchdog::stand_down() noexcept {
  standing_down_ = true;
}

void Watchdog::look_now(std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  const int number = ++asked_;
  while (looked_ < number && Clock::now() < deadline) {
    wake_.notify_all();  // again and again: the thread may be between its question and its sleep
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void Watchdog::stop() {
  stand_down();
  thread_.request_stop();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Watchdog::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  std::chrono::milliseconds pause = options_.interval / 8;  // a start has many short phases
  while (!stop.stop_requested()) {
    wake_.wait_for(lock, stop, pause, [this] { return asked_ != looked_; });
    pause = std::min(2 * pause, options_.interval);
    const int asked = asked_;  // who asks during the tick may have been overlooked
    try {
      tick();
    } catch (const Error& error) {
      leave({options_.rank,
             options_.store_host,
             error.exit_code(),
             std::string(error.id()),
             error.what()});
    } catch (const std::exception& error) {  // a thread that ended would leave a rank unwatched
      leave({options_.rank,
             options_.rank,
             static_cast<int>(ErrorKind::internal),
             "internal",
             error.what()});
    }
    looked_ = asked;
  }
}

void Watchdog::tick() {
  publish_beat(*store_, options_.rank, progress_.next_beat());
  if (const auto failure = reported_failure(*store_)) {
    leave(*failure);
  }
  check_peers();
  if (!options_.inspect) {
    return;
  }
  if (const auto failure = options_.inspect(*store_)) {
    leave(report_failure(*store_, *failure));
  }
}

void Watchdog::check_peers() {
  const std::vector<Beat> beats = read_beats(*store_, watched_);
  const auto now = Clock::now();
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    Seen& seen = seen_.try_emplace(watched_[i], Seen{0, now}).first->second;
    if (beats[i].count != seen.count) {
      seen = {beats[i].count, now};
    } else if (now - seen.when > options_.peer_lost) {
      const std::string text =
          fmt::format("rank {} is lost: no heartbeat for {} s (it was in '{}')",
                      watched_[i],
                      static_cast<double>(options_.peer_lost.count()) / 1000.0,
                      beats[i].phase);
      leave(report_failure(
          *store_,
          {options_.rank, watched_[i], static_cast<int>(ErrorKind::comm), "peer-lost", text}));
    }
  }
}

void Watchdog::leave(const Failure& failure) {
  if (standing_down_.exchange(true)) {
    return;
  }
  if (failure.reporter == options_.rank) {
    log::write(log::Level::error, sentence(failure));
  } else {
    log::record(log::Level::error, sentence(failure));  // its reporter tells it to people
  }
  notice_.tell(with_phases(failure, *store_, options_.size));
  log::flush();
  const bool hosting = options_.store_host == options_.rank;
  depart(*store_, hosting, options_.size - 1, 2 * options_.interval);
  // The main thread may be stuck inside a collective, so nothing can be unwound.
  std::_Exit(static_cast<int>(ErrorKind::comm));
}

}  // namespace colossal::detail
