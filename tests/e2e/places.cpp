// Which errors have to tell a place? Those of the catalogue that end a run with exit code 3 or 4.
#include "e2e/places.hpp"

#include <set>
#include <sstream>

namespace colossal::test {
namespace {

using Words = std::set<std::string>;

/// Commands that are given a configuration and nothing else that could be wrong.
const Words& commands() {
  static const Words words = {"train", "plan", "validate"};
  return words;
}

/// What no key of one configuration is to blame for.
const Words& exceptions() {
  static const Words words = {
      "config-differs",  // a key of another rank's configuration
      "label-range",     // found in a step: the message names the sample
      "no-labels",       // the same
      "token-range",     // the same, of data that were checked no further than their header
  };
  return words;
}

/// Ids of schemas/errors.md with exit code 3 or 4.
Words ids_of_keys() {
  Words ids;
  std::istringstream lines(read_file(data_file("../../schemas/errors.md")));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t end = line.find("` | ");
    if (!line.starts_with("| `") || end == std::string::npos) {
      continue;
    }
    const std::string codes = line.substr(end + 4, line.find('|', end + 4) - end - 4);
    const std::string id = line.substr(3, end - 3);
    if (codes.find_first_of("34") != std::string::npos && !exceptions().contains(id)) {
      ids.insert(id);
    }
  }
  REQUIRE(ids.size() > 80);  // or the table is written in another way
  return ids;
}

/// The id at the end of a line that is an error without a place; empty if it is none.
std::string unplaced_id(std::string line) {
  if (line.starts_with("[rank")) {
    line.erase(0, line.find("] ") + 2);
  }
  const std::size_t open = line.rfind(" [");
  const bool error = line.starts_with("error: ") && line.ends_with("]");
  return error && open != std::string::npos ? line.substr(open + 2, line.size() - open - 3) : "";
}

}  // namespace

void require_places(const std::string& command, const std::string& text) {
  if (!commands().contains(command) || text.find("error: ") == std::string::npos) {
    return;
  }
  static const Words ids = ids_of_keys();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    // How much memory a machine has is said by no key.
    const bool of_machine = unplaced_id(line) == "memory-over" &&
                            line.find("and this machine has ") != std::string::npos;
    CHECK((of_machine || !ids.contains(unplaced_id(line))));
  }
}

}  // namespace colossal::test
