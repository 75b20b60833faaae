// How do errors that are found after the configuration was read look to a program? As its own do.
#pragma once

#include "comm/failure.hpp"
#include "config/load.hpp"
#include "core/error.hpp"

namespace colossal {

/// An error as a diagnostic: its message, which may have several lines, its fix, and its key with
/// its place.
[[nodiscard]] Diagnostic to_diagnostic(const Error& error);

/// The failure that ended a run, with the place of its key in `loaded`.
[[nodiscard]] Diagnostic to_diagnostic(const RunFailure& failure, const Loaded& loaded);

/// Writes a diagnostic to stdout as one JSON line, at once.
void print_json(const Diagnostic& item);

/// Writes an error that ends the process to stderr, with colours where --color allows; `json`: as
/// print_json() in its place.
void write_error(const Error& error, bool json = false);

}  // namespace colossal
