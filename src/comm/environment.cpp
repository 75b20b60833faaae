// Who started this process, and as which rank?
#include "comm/detail/local_job.hpp"
#include "comm/world.hpp"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

namespace colossal {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

/// Reads the variables of one launcher; all complaints come together.
class Reader {
 public:
  std::string text(const char* name) {
    const auto value = variable(name);
    if (!value) {
      missing_ += missing_.empty() ? name : std::string(", ") + name;
    }
    return value.value_or("");
  }

  int number(const char* name, int smallest, int largest) {
    const std::string value = text(name);
    int parsed = smallest;
    const char* end = value.data() + value.size();
    const auto [stop, failure] = std::from_chars(value.data(), end, parsed);
    const bool good =
        failure == std::errc() && stop == end && parsed >= smallest && parsed <= largest;
    if (variable(name) && !good) {
      malformed_ += fmt::format("{}{}='{}' (a whole number from {} to {})",
                                malformed_.empty() ? "" : ", ",
                                name,
                                value,
                                smallest,
                                largest);
    }
    return good ? parsed : smallest;
  }

  void finish() const {
    check(missing_.empty(),
          ErrorKind::environment,
          "launch-env",
          "the launcher's environment is incomplete: {} not set; start with torchrun or --nproc, "
          "or unset "
          "RANK and WORLD_SIZE for a single process",
          missing_);
    check(malformed_.empty(),
          ErrorKind::environment,
          "launch-env",
          "the launcher's environment is wrong: {}",
          malformed_);
  }

 private:
  std::string missing_;
  std::string malformed_;
};

}  // namespace

LaunchOptions detect_launch() {
  LaunchOptions options;
  if (!variable("RANK") && !variable("WORLD_SIZE")) {
    return options;
  }
  constexpr int kMostRanks = 1'000'000;
  constexpr int kMostRestarts = 1'000'000;
  Reader reader;
  options.world_size = reader.number("WORLD_SIZE", 1, kMostRanks);
  options.rank = reader.number("RANK", 0, options.world_size - 1);
  options.local_world_size = reader.number("LOCAL_WORLD_SIZE", 1, options.world_size);
  options.local_rank = reader.number("LOCAL_RANK", 0, options.local_world_size - 1);
  options.address = reader.text("MASTER_ADDR");
  options.port = reader.number("MASTER_PORT", 1, 65535);
  if (variable("TORCHELASTIC_RESTART_COUNT")) {
    options.attempt = reader.number("TORCHELASTIC_RESTART_COUNT", 0, kMostRestarts);
  }
  reader.finish();
  const bool spawned = variable(detail::kLauncherVariable).has_value();
  options.mode = spawned ? "spawn" : "torchrun";
  options.origin = fmt::format("WORLD_SIZE={} set by {}",
                               options.world_size,
                               spawned ? "--nproc" : "torchrun or a compatible launcher");
  options.store_is_hosted = spawned || variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return options;
}

}  // namespace colossal
