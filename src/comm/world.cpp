// How do ranks meet, and how do they part?
#include "comm/world.hpp"

#include "comm/detail/backend.hpp"
#include "comm/detail/file_rendezvous.hpp"
#include "comm/detail/group.hpp"
#include "comm/detail/group_check.hpp"
#include "comm/detail/session.hpp"
#include "core/log.hpp"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

namespace colossal {
namespace {

/// The group check has failed: its author throws, the others leave without a word.
[[noreturn]] void refuse_start(detail::Session& session, const detail::Objection& objection) {
  const detail::Failure failure{session.launch.rank,
                                objection.rank,
                                static_cast<int>(objection.kind),
                                objection.id,
                                objection.message};
  const int world_size = session.launch.world_size;
  if (objection.mine) {
    detail::report_failure(*session.store, failure);
    session.notice->tell(detail::with_phases(failure, *session.store, world_size));
  }
  detail::depart(
      *session.store, session.store->is_host(), world_size - 1, session.timeouts.heartbeat);
  if (objection.mine) {
    fail(objection.kind, objection.id, "{}", objection.message);
  }
  log::record(log::Level::error, detail::sentence(failure));
  log::flush();
  std::_Exit(failure.exit_code);
}

std::unique_ptr<detail::Store> open_store(const LaunchOptions& launch,
                                          std::chrono::milliseconds timeout) {
  const detail::Endpoint endpoint{
      launch.address, launch.port, detail::store_prefix(launch.attempt)};
  const bool hosting = launch.rank == 0 && !launch.store_is_hosted;
  if (!launch.rendezvous_file.empty()) {
    const detail::AddressFile file{launch.rendezvous_file, launch.job};
    return hosting ? detail::host_by_file(file, endpoint, timeout)
                   : detail::join_by_file(file, endpoint, timeout);
  }
  return hosting ? detail::Store::host(endpoint, timeout) : detail::Store::join(endpoint, timeout);
}

bool all_on_this_machine(const LaunchOptions& launch) {
  return detail::is_loopback(launch.address) && launch.local_world_size == launch.world_size;
}

}  // namespace

struct World::Impl {
  LaunchOptions launch;
  at::Device device = at::kCPU;
  std::shared_ptr<detail::Session> session;       // empty when alone
  std::unique_ptr<detail::FailureNotice> notice;  // when alone; else the session's
  std::string phase;                              // the same
  std::vector<std::shared_ptr<detail::Group>> groups;
  Comm all;
  bool closed = false;

  Comm alone(std::string_view name) const {
    return Comm(std::make_shared<detail::Group>(std::string(name), launch.rank));
  }
  Comm connect_group(std::string_view name, const std::vector<int>& ranks);
};

Comm World::Impl::connect_group(std::string_view name, const std::vector<int>& ranks) {
  const auto self = std::find(ranks.begin(), ranks.end(), launch.rank);
  check(self != ranks.end() && std::is_sorted(ranks.begin(), ranks.end()),
        ErrorKind::internal,
        "group-ranks",
        "group {} must list rank {} and be ascending",
        name,
        launch.rank);
  for (const std::shared_ptr<detail::Group>& group : groups) {
    if (group->name() == name) {
      check(group->ranks() == ranks,
            ErrorKind::internal,
            "group-name",
            "group {} exists already with other ranks",
            name);
      return Comm(group);  // a second context of the same mesh
    }
  }
  session->progress.set_phase(fmt::format("connecting group {}", name));
  detail::BackendOptions options;
  options.prefix = fmt::format("pg/{}/{}", name, ranks.front());
  options.rank = static_cast<int>(self - ranks.begin());
  options.size = static_cast<int>(ranks.size());
  options.local = all_on_this_machine(launch);
  options.connect_timeout = session->timeouts.init;
  options.collective_timeout = session->timeouts.collective;
  options.device = device;
  std::unique_ptr<detail::Backend> backend = detail::connect_gloo(*session->store, options);
  if (device.is_cuda()) {
    backend = detail::by_device(std::move(backend), detail::connect_nccl(*session->store, options));
  }
  groups.push_back(std::make_shared<detail::Group>(
      std::string(name), ranks, options.rank, std::move(backend), session));
  return Comm(groups.back());
}

std::unique_ptr<World> World::connect(const LaunchOptions& launch,
                                      const Identity& identity,
                                      const WorldTimeouts& timeouts,
                                      FailureListener on_failure) {
  auto impl = std::make_unique<Impl>();
  impl->launch = launch;
  impl->device = identity.device;
  impl->all = impl->alone("world");
  auto notice = std::make_unique<detail::FailureNotice>(std::move(on_failure));
  if (launch.world_size == 1) {
    impl->notice = std::move(notice);
    return std::unique_ptr<World>(new World(std::move(impl)));
  }
  if (identity.device.is_cuda()) {
    detail::prepare_nccl();
  }
  auto session = std::make_shared<detail::Session>();
  session->launch = launch;
  session->timeouts = timeouts;
  session->store = open_store(launch, timeouts.init);
  session->progress.set_phase("waiting for all ranks");
  detail::publish_beat(*session->store, launch.rank, session->progress.next_beat());
  session->notice = std::move(notice);
  if (const auto objection =
          detail::check_group(*session->store, launch, identity, timeouts.init)) {
    refuse_start(*session, *objection);
  }
  if (session->store->is_host()) {
    detail::forget_address(launch.rendezvous_file);  // all are here
  }
  detail::WatchdogOptions watch{launch.rank,
                                launch.world_size,
                                timeouts.heartbeat,
                                timeouts.peer_lost,
                                session->store_host(),
                                {}};
  if (identity.device.is_cuda()) {
    watch.inspect = [known = session.get()](detail::Store& connection) {
      return known->device_failure(connection);  // the session outlives its watchdog
    };
  }
  std::unique_ptr<detail::Store> watched =
      detail::Store::join(session->store->endpoint(), timeouts.init);
  watched->wait_without_end();
  session->watchdog = std::make_unique<detail::Watchdog>(
      std::move(watched), watch, session->progress, *session->notice);
  impl->session = std::move(session);
  std::vector<int> everyone(static_cast<std::size_t>(launch.world_size));
  for (int rank = 0; rank < launch.world_size; ++rank) {
    everyone[static_cast<std::size_t>(rank)] = rank;
  }
  impl->all = impl->connect_group("world", everyone);
  impl->session->store->wait_without_end();
  return std::unique_ptr<World>(new World(std::move(impl)));
}

World::World(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

World::~World() {
  if (impl_->session == nullptr || impl_->closed) {
    return;
  }
  // Not an orderly end: destroying groups while peers sit in collectives hangs, so they are left to
  // the process's end.
  impl_->session->watchdog->stop();
  static_cast<void>(impl_.release());
}

int World::rank() const noexcept {
  return impl_->launch.rank;
}
int World::size() const noexcept {
  return impl_->launch.world_size;
}
const LaunchOptions& World::launch() const noexcept {
  return impl_->launch;
}
at::Device World::device() const noexcept {
  return impl_->device;
}
const Comm& World::comm() const noexcept {
  return impl_->all;
}

Comm World::make_group(std::string_view name, const std::vector<int>& ranks) {
  if (ranks.size() == 1) {
    return impl_->alone(name);
  }
  return impl_->connect_group(name, ranks);
}

void World::set_phase(std::string_view phase) {
  if (impl_->session != nullptr) {
    impl_->session->progress.set_phase(phase);
  } else {
    impl_->phase = phase;
  }
}

void World::abort(const Error& error) {
  if (impl_->session == nullptr) {
    report(error);
    log::failure(error);
    log::flush();
    std::_Exit(error.exit_code());
  }
  detail::Session& session = *impl_->session;
  session.watchdog->stand_down();
  const detail::Failure mine = session.failure_of(error);
  detail::Failure first = mine;
  try {
    // Its peers shall know where it was, also if it failed before its second beat.
    detail::publish_beat(*session.store, rank(), session.progress.next_beat());
    first = detail::report_failure(*session.store, mine);
  } catch (const Error& store_error) {
    log::debug("the other ranks cannot be told: {}", store_error.what());
  }
  // Ranks run out of memory together, each at a request of its own.
  const bool alike = first.text == mine.text || error.kind() == ErrorKind::memory;
  const bool known = error.kind() == ErrorKind::comm || (first.id == mine.id && alike);
  if (first.reporter == rank() || !known) {
    log::failure(error);
  } else {
    // The first failure explains this rank's trouble with its peers, and its reporter tells it.
    log::record(log::Level::error, detail::sentence(first));
  }
  session.notice->tell(detail::with_phases(first, *session.store, size()));
  log::flush();
  detail::depart(
      *session.store, session.store->is_host(), size() - 1, 2 * session.timeouts.heartbeat);
  std::_Exit(error.exit_code());
}

void World::report(const Error& error) {
  log::record(log::Level::error, log::with_id(error.what(), error.id()));
  if (impl_->notice != nullptr) {
    impl_->notice->tell({rank(),
                         error.exit_code(),
                         std::string(error.id()),
                         error.what(),
                         {impl_->phase},
                         error.key()});
  }
}

void World::yield_to_failure() {
  if (impl_->session == nullptr) {
    return;
  }
  detail::Session& session = *impl_->session;
  session.watchdog->look_now(std::min<std::chrono::milliseconds>(session.timeouts.heartbeat,
                                                                 std::chrono::milliseconds(1'000)));
  if (session.explaining) {
    // The main thread gives its peers 2.5 heartbeats to say why, and then leaves through abort().
    std::this_thread::sleep_for(3 * session.timeouts.heartbeat);
  }
}

void World::close() {
  if (impl_->session == nullptr || impl_->closed) {
    return;
  }
  detail::Session& session = *impl_->session;
  session.progress.set_phase("closing");
  impl_->all.barrier();
  // A rank that has left the barrier may still owe messages to slower ones: no group ends before
  // all have left it.
  detail::leave_barrier(*session.store, size());
  session.watchdog->stop();
  while (!impl_->groups.empty()) {
    impl_->groups.back()->close();
    impl_->groups.pop_back();
  }
  detail::say_closed(*session.store, size());
  impl_->closed = true;
}

}  // namespace colossal
