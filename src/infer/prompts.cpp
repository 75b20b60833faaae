// Lines from a descriptor without waiting for more than is there.
#include "infer/prompts.hpp"

#include "core/error.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <unistd.h>
#include <utility>

namespace colossal {
namespace {

[[noreturn]] void unreadable() {
  fail(ErrorKind::data, "prompts-unreadable", "cannot read prompts: {}", std::strerror(errno));
}

bool is_readable(int descriptor, bool wait) {
  pollfd polled{descriptor, POLLIN, 0};
  const int count = ::poll(&polled, 1, wait ? -1 : 0);
  if (count < 0 && errno != EINTR) {
    unreadable();
  }
  return count > 0;
}

}  // namespace

void Prompts::add(std::string line) {
  if (line.ends_with('\r')) {
    line.pop_back();
  }
  if (!line.empty()) {
    ready_.push_back(std::move(line));
  }
}

Prompts::Prompts(std::string text) {
  ready_.push_back(std::move(text));
}

Prompts::Prompts(int descriptor) : descriptor_(descriptor) {}

std::optional<std::string> Prompts::next(bool wait) {
  while (ready_.empty()) {
    const bool more = descriptor_ >= 0 && read_some(wait);
    if (!more && (descriptor_ < 0 || !wait) && ready_.empty()) {
      return std::nullopt;
    }
  }
  std::string prompt = std::move(ready_.front());
  ready_.pop_front();
  return prompt;
}

bool Prompts::read_some(bool wait) {
  if (!is_readable(descriptor_, wait)) {
    return false;
  }
  std::array<char, 65'536> bytes;
  const ssize_t count = ::read(descriptor_, bytes.data(), bytes.size());
  if (count < 0) {
    if (errno == EINTR || errno == EAGAIN) {
      return false;
    }
    unreadable();
  }
  rest_.append(bytes.data(), static_cast<std::size_t>(count));
  split();
  if (count == 0) {
    descriptor_ = -1;
    add(std::exchange(rest_, {}));  // the last line needs no newline
  }
  return count > 0;
}

void Prompts::split() {
  std::size_t begin = 0;
  for (std::size_t end = rest_.find('\n'); end != std::string::npos;
       end = rest_.find('\n', begin)) {
    add(rest_.substr(begin, end - begin));
    begin = end + 1;
  }
  rest_.erase(0, begin);
}

}  // namespace colossal
