// What do the tests of memory reports share? Small configurations that lack memory, and what is
// said of them.
#pragma once

#include "core/error.hpp"
#include "support/catch.hpp"
#include "support/tiny_models.hpp"
#include "train/memory_report.hpp"

#include <cstdint>
#include <string>

namespace colossal::test {

inline constexpr std::int64_t kMiB = std::int64_t{1} << 20U;

inline Config with_micro_batch(std::int64_t micro, std::int64_t accumulation) {
  Config config = tiny_gpt();
  config.train.micro_batch_size = micro;
  config.train.gradient_accumulation = accumulation;
  return config;
}

inline std::int64_t planned(const Config& config) {
  return make_plan(config, 0).ranks.front().total();
}

/// A configuration whose device is `missing` bytes smaller than its plan; negative: larger.
inline Config with_missing(std::int64_t missing) {
  Config config = with_micro_batch(8, 1);
  config.run.device_memory = planned(config) - missing;
  return config;
}

/// What refuse_if_over() throws; empty if nothing.
inline std::string refusal_of(const Config& config) {
  try {
    refuse_if_over(make_plan(config, 0), config);
  } catch (const Error& error) {
    CHECK(error.id() == "memory-over");
    CHECK(error.exit_code() == 3);
    return error.what();
  }
  return "";
}

}  // namespace colossal::test
