// Does every message of a run about a key say where the key was written?
#pragma once

#include "e2e/program.hpp"

#include <string>

namespace colossal::test {

/// Fails the test if `text`, what `command` has written to stderr, holds an error without a place
/// although a key of the configuration has caused it: one whose exit code is that of configuration
/// or data in schemas/errors.md.
void require_places(const std::string& command, const std::string& text);

}  // namespace colossal::test
