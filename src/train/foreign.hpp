// How do the errors of other libraries become ours?
#pragma once

#include "core/error.hpp"

#include <exception>
#include <string>
#include <string_view>

namespace colossal {

/// Whether an allocator of LibTorch or the system says so: they have this text in common, not a
/// type.
[[nodiscard]] bool tells_out_of_memory(std::string_view text);

/// Any exception as an Error: out of memory becomes memory "out-of-memory", everything foreign
/// internal "internal" with the build id.
[[nodiscard]] Error to_error(const std::exception& error);

/// One message for stderr, with a final newline: the id ends the first line.
[[nodiscard]] std::string to_text(const Error& error);

}  // namespace colossal
