// Which program is this? Version and git revision, the latter known only at build time.
#include "build_info.hpp"
#include "train/commands.hpp"

namespace colossal {

std::string build_id() {
  return std::string(kVersion) + "+" + kRevision;
}

}  // namespace colossal
