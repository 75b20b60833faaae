// Is every launcher environment recognised, and every wrong one explained?
#include "comm/world.hpp"
#include "launcher_variables.hpp"
#include "support/catch.hpp"

#include <string>
#include <vector>

using colossal::detect_launch;
using colossal::test::Environment;
using colossal::test::Variables;

namespace {

Variables complete() {
  return {{"RANK", "5"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "node7"},
          {"MASTER_PORT", "29500"}};
}

std::string error_of(const Variables& variables) {
  const Environment environment(variables);
  try {
    static_cast<void>(detect_launch());
  } catch (const colossal::Error& error) {
    CHECK(error.id() == "launch-env");
    CHECK(error.exit_code() == 9);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("without variables the process is alone", "[launch-env]") {
  const Environment environment(Variables{{"MASTER_ADDR", "node7"}});  // set in many containers
  const auto options = detect_launch();
  CHECK(options.mode == "single");
  CHECK(options.world_size == 1);
  CHECK(options.origin == "no launcher environment found");
}

TEST_CASE("torchrun's variables are read", "[launch-env]") {
  const Environment environment(complete());
  const auto options = detect_launch();
  CHECK(options.mode == "torchrun");
  CHECK(options.rank == 5);
  CHECK(options.world_size == 8);
  CHECK(options.local_rank == 1);
  CHECK(options.local_world_size == 4);
  CHECK(options.address == "node7");
  CHECK(options.port == 29500);
  CHECK_FALSE(options.store_is_hosted);
}

TEST_CASE("torchrun's agent or our launcher host the store", "[launch-env]") {
  Variables agent = complete();
  agent["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  agent["TORCHELASTIC_RESTART_COUNT"] = "2";
  {
    const Environment environment(agent);
    CHECK(detect_launch().store_is_hosted);
    CHECK(detect_launch().attempt == 2);
  }
  agent["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  {
    const Environment environment(agent);
    CHECK_FALSE(detect_launch().store_is_hosted);
  }
  Variables spawned = complete();
  spawned["COLOSSAL_LAUNCHER_PID"] = "1";
  const Environment environment(spawned);
  CHECK(detect_launch().store_is_hosted);
  CHECK(detect_launch().mode == "spawn");
}

TEST_CASE("missing variables are listed by name", "[launch-env]") {
  const std::string missing = GENERATE(
      "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT");
  Variables variables = complete();
  variables.erase(missing);
  REQUIRE(error_of(variables).find(missing + " not set") != std::string::npos);
}

TEST_CASE("malformed and impossible numbers are named with their range", "[launch-env]") {
  const std::vector<std::vector<std::string>> cases{{"RANK", "8"},
                                                    {"RANK", "-1"},
                                                    {"RANK", "two"},
                                                    {"WORLD_SIZE", "0"},
                                                    {"WORLD_SIZE", ""},
                                                    {"LOCAL_RANK", "4"},
                                                    {"LOCAL_WORLD_SIZE", "9"},
                                                    {"MASTER_PORT", "70000"},
                                                    {"MASTER_PORT", "29500x"}};
  for (const auto& wrong : cases) {
    Variables variables = complete();
    variables[wrong[0]] = wrong[1];
    const std::string message = error_of(variables);
    INFO(message);
    CHECK(message.find(wrong[0] + "='" + wrong[1] + "'") != std::string::npos);
    CHECK(message.find("whole number from") != std::string::npos);
  }
}
