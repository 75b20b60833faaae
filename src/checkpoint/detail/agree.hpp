// How do all ranks fail together? Each step of a save or load ends in one exchange of outcomes.
#pragma once

#include "comm/comm.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace colossal::detail {

/// Runs `body` here and returns every rank's result, in order of rank. Collective; also a barrier.
/// If a body throws, every rank throws: those that failed their own error, the others that of the
/// first failed rank. Exceptions that are not ours become checkpoint errors with this id.
[[nodiscard]] std::vector<std::string> agree(const Comm& world,
                                             std::string_view id,
                                             const std::function<std::string()>& body);

}  // namespace colossal::detail
