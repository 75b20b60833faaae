// How are descriptors closed, files read and hosts named?
#include "core/system.hpp"

#include <array>
#include <fstream>
#include <sstream>
#include <unistd.h>
#include <utility>

namespace colossal {

Descriptor::~Descriptor() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  Descriptor old(std::exchange(fd_, other.release()));
  return *this;
}

int Descriptor::release() noexcept {
  return std::exchange(fd_, -1);
}

std::string read_text(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace colossal
