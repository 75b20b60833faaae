// How is a foreign error recognised? By its type where it has one, else by its text.
#include "train/foreign.hpp"

#include "core/log.hpp"
#include "train/commands.hpp"

#include <fmt/format.h>

#include <new>
#include <source_location>

namespace colossal {

bool tells_out_of_memory(std::string_view text) {
  return text.find("allocate memory") != std::string_view::npos ||
         text.find("out of memory") != std::string_view::npos;
}

Error to_error(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) {
    return *own;
  }
  const std::string_view text = error.what();
  if (text.find("run.device_memory") != std::string_view::npos) {
    return {
        ErrorKind::memory,
        "out-of-memory",
        fmt::format("{}\n  fix   raise it, or do less at once: a smaller micro_batch_size, fewer "
                    "or shorter prompts",
                    text.substr(0, text.find('\n'))),
        std::source_location::current()};
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr || tells_out_of_memory(text)) {
    return {ErrorKind::memory,
            "out-of-memory",
            fmt::format("the host has no memory left: {}\n  fix   a smaller "
                        "train.micro_batch_size needs less",
                        text),
            std::source_location::current()};
  }
  return {
      ErrorKind::internal,
      "internal",
      fmt::format(
          "internal error: {}\n  this is a bug: please report it with build {}", text, build_id()),
      std::source_location::current()};
}

std::string to_text(const Error& error) {
  return log::error_text(error) + "\n";
}

}  // namespace colossal
