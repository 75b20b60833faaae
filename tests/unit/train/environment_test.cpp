// Does env.json tell what a run depends on, and nothing that must stay secret?
#include "train/environment.hpp"

#include "support/catch.hpp"

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace colossal {
namespace {

/// A variable of this process while the object lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST_CASE("times are UTC and have one form", "[environment]") {
  CHECK(utc_time(0) == "1970-01-01T00:00:00Z");
  CHECK(utc_time(951'782'400) == "2000-02-29T00:00:00Z");  // a leap day of a century
  CHECK(utc_time(4'102'444'799) == "2099-12-31T23:59:59Z");
  CHECK(utc_time(-1) == "1969-12-31T23:59:59Z");
  const Variable zone("TZ", "America/Caracas");
  ::tzset();
  CHECK(utc_time(1'764'288'000) == "2025-11-28T00:00:00Z");
  CHECK(utc_now() >= "2026-");
  CHECK(std::abs(unix_time() - static_cast<double>(std::time(nullptr))) < 2);
}

TEST_CASE("only variables that change a run are kept", "[environment]") {
  const Variable secret("COLOSSAL_TEST_API_KEY", "hunter2-y");
  const Variable threads("OMP_NUM_THREADS", "7");
  const auto variables = environment_variables();
  CHECK(variables.at("OMP_NUM_THREADS") == "7");
  CHECK_FALSE(variables.contains("COLOSSAL_TEST_API_KEY"));
  CHECK_FALSE(variables.contains("PATH"));
  CHECK(environment_json({}, {}).find("hunter2") == std::string::npos);
}

TEST_CASE("bytes that are no text do not keep env.json from being JSON", "[environment]") {
  const Variable odd("LD_LIBRARY_PATH", "/caf\xff");
  const auto json = nlohmann::json::parse(environment_json({}, {"train", "a\xff.yaml"}));
  CHECK(json.at("environment").at("LD_LIBRARY_PATH") == "/caf\uFFFD");
  CHECK(json.at("command").at(1) == "a\uFFFD.yaml");
}

TEST_CASE("env.json says how the ranks were started", "[environment]") {
  LaunchOptions launch;
  launch.mode = "torchrun";
  launch.world_size = 6;
  const auto json = nlohmann::json::parse(environment_json(launch, {"train"}));
  CHECK(json.at("launch") == "torchrun");
  CHECK(json.at("world_size") == 6);
  CHECK(json.at("started").get<std::string>().size() == std::string("2026-11-28T12:00:00Z").size());
  CHECK(json.at("build_id").get<std::string>().find('+') != std::string::npos);
}

TEST_CASE("a run is as old as its process, a spawned rank as its launcher", "[environment]") {
  constexpr double kTick = 0.02;
  const double before = seconds_since_process_start({});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double after = seconds_since_process_start({});
  CHECK(after - before >= 0.05);
  const pid_t child = ::fork();
  if (child == 0) {
    LaunchOptions spawned;
    spawned.mode = "spawn";
    const double as_rank = seconds_since_process_start(spawned);
    const double alone = seconds_since_process_start({});
    const bool right = as_rank >= after - kTick && alone < as_rank && alone >= -kTick;
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace
}  // namespace colossal
