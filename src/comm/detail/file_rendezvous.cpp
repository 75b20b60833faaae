// How is an address left on a shared disk, so that nobody reads half of it or that of another job?
#include "comm/detail/file_rendezvous.hpp"

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/system.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace colossal::detail {
namespace {

using Clock = std::chrono::steady_clock;

/// How long one try to connect takes, before the file is read again.
constexpr std::chrono::milliseconds kTry{3'000};
constexpr std::chrono::milliseconds kPause{50};

/// The store that the file of this job names, if it is there already: lines job, host and port.
std::optional<Endpoint> read_address(const AddressFile& file, const Endpoint& like) {
  std::istringstream text(read_text(file.path));
  std::string job;
  std::string host;
  int port = 0;
  const bool whole = std::getline(text, job) && std::getline(text, host) && text >> port;
  return whole && job == file.job ? std::optional(Endpoint{host, port, like.prefix}) : std::nullopt;
}

/// Under another name first: a reader sees all or nothing.
void write_address(const AddressFile& file, const Endpoint& endpoint) {
  const std::string part = file.path.string() + ".part-" + host_name() + std::to_string(::getpid());
  std::ofstream out(part, std::ios::trunc);
  out << file.job << "\n" << endpoint.address << "\n" << endpoint.port << "\n";
  out.close();
  std::error_code error =
      out.good() ? std::error_code() : std::error_code(errno, std::generic_category());
  if (!error) {
    std::filesystem::rename(part, file.path, error);
  }
  check(
      !error,
      ErrorKind::environment,
      "rendezvous-file",
      "cannot write the address of rank 0 into {}: {}\n  fix   --rendezvous file:PATH in a folder "
      "that all machines share and this user may write",
      file.path.string(),
      error.message());
}

}  // namespace

std::unique_ptr<Store> host_by_file(const AddressFile& file,
                                    const Endpoint& endpoint,
                                    std::chrono::milliseconds timeout) {
  Endpoint named = endpoint;
  named.address = endpoint.address.empty() ? host_name() : endpoint.address;
  std::unique_ptr<Store> store = Store::host(named, timeout);
  write_address(file, store->endpoint());
  return store;
}

std::unique_ptr<Store> join_by_file(const AddressFile& file,
                                    const Endpoint& endpoint,
                                    std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  std::string last = "the file does not exist or belongs to another job";
  for (; Clock::now() < deadline; std::this_thread::sleep_for(kPause)) {
    const std::optional<Endpoint> found = read_address(file, endpoint);
    if (!found) {
      continue;
    }
    try {
      std::unique_ptr<Store> store = Store::join(*found, std::min(kTry, timeout));
      store->extend(timeout);  // that of a try would bound each later wait
      return store;
    } catch (const Error& error) {
      last = error.what();
    }
  }
  fail(ErrorKind::comm,
       "rendezvous",
       "rank 0 was not found by {} within {} s: {}\n  fix   check that rank 0 has started and that "
       "all "
       "machines see this file",
       file.path.string(),
       static_cast<double>(timeout.count()) / 1000.0,
       last.substr(0, last.find('\n')));
}

void forget_address(const std::filesystem::path& path) noexcept {
  std::error_code ignored;
  if (!path.empty()) {
    std::filesystem::remove(path, ignored);
  }
}

}  // namespace colossal::detail
