// Are all ranks of one run present, and do they run the same thing?
#pragma once

#include "comm/detail/store.hpp"
#include "comm/world.hpp"

#include <chrono>

namespace colossal::detail {

/// Publishes this rank and waits for rank 0's verdict about all of them (config-and-cli 7.2); the
/// same error is thrown on every rank. Communicates through the store only. Errors: comm
/// "rendezvous" listing missing ranks, "duplicate-rank", "local-rank" or "build-differs"; config
/// "config-differs".
void check_group(Store& store,
                 const LaunchOptions& launch,
                 const Identity& identity,
                 std::chrono::milliseconds timeout);

}  // namespace colossal::detail
