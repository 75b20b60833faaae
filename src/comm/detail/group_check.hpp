// Are all ranks of one run present, and do they run the same thing?
#pragma once

#include "comm/detail/store.hpp"
#include "comm/world.hpp"
#include "core/error.hpp"

#include <chrono>
#include <optional>
#include <string>

namespace colossal::detail {

/// Why a group cannot start: the same on every rank but for `mine`.
struct Objection {
  ErrorKind kind = ErrorKind::comm;
  std::string id;
  std::string message;
  /// The rank that does not fit.
  int rank = 0;
  /// This process has raised it, and alone tells it to people.
  bool mine = false;
};

/// Publishes this rank and waits for rank 0's verdict about all of them (config-and-cli 7.2).
/// Nothing if all is well, else the same objection on every rank: comm "rendezvous" listing missing
/// ranks, "duplicate-rank", "local-rank", "build-differs", "gpu-differs" or "gpu-shared"; config
/// "config-differs" with the keys. Communicates through the store only.
[[nodiscard]] std::optional<Objection> check_group(Store& store,
                                                   const LaunchOptions& launch,
                                                   const Identity& identity,
                                                   std::chrono::milliseconds timeout);

}  // namespace colossal::detail
