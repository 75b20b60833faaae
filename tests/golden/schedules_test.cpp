// Is the learning rate of every step that of PyTorch's schedulers, or of a closed form where it has
// none, inside and beyond the run?
#include "config/load.hpp"
#include "config/words.hpp"
#include "optim/scheduler.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace colossal {
namespace {

using Json = nlohmann::json;

template <class E>
E enumerator(const std::string& word) {
  const auto& words = detail::kWords<E>;
  const auto* const found = std::find(words.begin(), words.end(), word);
  REQUIRE(found != words.end());
  return static_cast<E>(found - words.begin());
}

SchedulerConfig config_of(const Json& recorded) {
  SchedulerConfig config;
  config.type = enumerator<SchedulerType>(recorded["type"]);
  for (const auto& [key, value] : recorded.items()) {
    if (key == "warmup_steps") {
      config.warmup_steps = value.get<std::int64_t>();
    } else if (key == "decay_steps") {
      config.decay_steps = value.get<std::int64_t>();
    } else if (key == "min_lr_ratio") {
      config.min_lr_ratio = value;
    } else if (key == "power") {
      config.power = value;
    } else if (key == "step_size") {
      config.step_size = value.get<std::int64_t>();
    } else if (key == "milestones") {
      config.milestones = value.get<std::vector<std::int64_t>>();
    } else if (key == "gamma") {
      config.gamma = value;
    } else if (key == "stable_ratio") {
      config.stable_ratio = value.get<double>();
    } else if (key == "decay_shape") {
      config.decay_shape = enumerator<DecayShape>(value);
    } else {
      REQUIRE(key == "type");
    }
  }
  return config;
}

void check_case(const Json& recorded, double lr) {
  INFO(recorded["scheduler"].dump() << " over " << recorded["steps"] << " steps");
  const auto total = recorded["steps"].get<std::int64_t>();
  const Scheduler scheduler(config_of(recorded["scheduler"]), lr, total);
  const auto& rates = recorded["lr"];
  REQUIRE(std::ssize(rates) >= total);
  for (std::size_t k = 0; k < rates.size(); ++k) {
    INFO("step " << k);
    const double expected = rates[k];
    const double got = scheduler.lr(static_cast<std::int64_t>(k));
    CHECK(std::abs(got - expected) <= 1e-12 * lr);
    if (recorded.contains("momentum")) {
      const auto momentum = scheduler.momentum(static_cast<std::int64_t>(k));
      REQUIRE(momentum.has_value());
      CHECK(std::abs(*momentum - recorded["momentum"][k].get<double>()) <= 1e-12);
    }
  }
}

TEST_CASE("every schedule equals PyTorch or its closed form at every step", "[golden]") {
  const Json recorded =
      Json::parse(std::ifstream(std::string(COLOSSAL_TEST_DATA) + "/fixtures/schedules.json"));
  std::set<std::string> types;
  for (const Json& one : recorded["cases"]) {
    check_case(one, recorded["lr"]);
    types.insert(one["scheduler"]["type"]);
  }
  CHECK(types.size() == detail::kWords<SchedulerType>.size());
}

}  // namespace
}  // namespace colossal
