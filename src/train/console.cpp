// In which form is a run told, and by which processes?
#include "core/color.hpp"
#include "core/log.hpp"
#include "core/system.hpp"
#include "mesh/device.hpp"
#include "train/startup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unistd.h>

namespace colossal {

void set_console(ConsoleForm form) {
  log::set_console(form == ConsoleForm::json ? log::Console::json : log::Console::text);
  if (form == ConsoleForm::plain) {
    set_color_mode(ColorMode::never);
  }
}

bool keeps_info(const LoggingConfig& logging, int rank) {
  return std::ranges::any_of(logging.ranks,
                             [&](std::int64_t one) { return one == rank || one == kEveryRank; });
}

void record_rank(const World& world) {
  const LaunchOptions& launch = world.launch();
  if (launch.rank > 0) {
    log::record(log::Level::info,
                fmt::format("rank {} of {} on {}, process {}, {}",
                            launch.rank,
                            launch.world_size,
                            host_name(),
                            getpid(),
                            describe_device(world.device())));
  }
}

}  // namespace colossal
