// How do ranks find rank 0 if they share nothing but a disk? By a file that it leaves there.
#pragma once

#include "comm/detail/store.hpp"

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

namespace colossal::detail {

/// A file with the address of a store, and the job that it belongs to: what another job has left
/// there means nothing.
struct AddressFile {
  std::filesystem::path path;
  std::string job;
};

/// Hosts a store on a free port and writes its address into the file. `endpoint.address` empty:
/// this host's name. Errors: environment "rendezvous-file"; those of Store::host().
[[nodiscard]] std::unique_ptr<Store> host_by_file(const AddressFile& file,
                                                  const Endpoint& endpoint,
                                                  std::chrono::milliseconds timeout);

/// Waits for the file of this job and connects to what it names; a file that nobody answers for is
/// read again. Errors: comm "rendezvous".
[[nodiscard]] std::unique_ptr<Store> join_by_file(const AddressFile& file,
                                                  const Endpoint& endpoint,
                                                  std::chrono::milliseconds timeout);

/// Removes the file after all ranks have met. An empty path: nothing.
void forget_address(const std::filesystem::path& path) noexcept;

}  // namespace colossal::detail
