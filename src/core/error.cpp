// How does an error collect its contexts?
#include "core/error.hpp"

#include <algorithm>
#include <ranges>
#include <vector>

namespace colossal {
namespace {

/// Contexts active on this thread, outermost first.
std::vector<std::string>& contexts() {
  thread_local std::vector<std::string> stack;
  return stack;
}

std::string with_contexts(const std::string& message) {
  std::string text = message;
  for (const std::string& context : std::views::reverse(contexts())) {
    text += "\n  while " + context;
  }
  return text;
}

}  // namespace

std::string_view name(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::internal:
      return "internal";
    case ErrorKind::usage:
      return "usage";
    case ErrorKind::config:
      return "config";
    case ErrorKind::data:
      return "data";
    case ErrorKind::checkpoint:
      return "checkpoint";
    case ErrorKind::memory:
      return "memory";
    case ErrorKind::numerics:
      return "numerics";
    case ErrorKind::comm:
      return "comm";
    case ErrorKind::environment:
      return "environment";
  }
  return "internal";
}

Error::Error(ErrorKind kind,
             std::string_view id,
             const std::string& message,
             std::source_location where)
    : std::runtime_error(with_contexts(message)), kind_(kind), id_(id), where_(where) {}

void Error::blame(std::string_view key) {
  if (key_.empty()) {
    key_ = key;
  }
}

Error Error::placed(std::string place, std::string_view lines) const {
  const std::string text = what();
  const std::size_t end = std::min(text.find('\n'), text.size());
  Error copy = *this;
  static_cast<std::runtime_error&>(copy) = std::runtime_error(
      text.substr(0, end) +
      (lines.empty() ? "" : "\n" + std::string(lines.substr(0, lines.size() - 1))) +
      text.substr(end));
  copy.place_ = std::move(place);
  return copy;
}

ErrorContext::ErrorContext(std::string what) {
  contexts().push_back(std::move(what));
}

ErrorContext::~ErrorContext() {
  contexts().pop_back();
}

}  // namespace colossal
